"""`evalbus lab`: serve until told to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from bus.errors import InputError
from workers.lab.server import Lab

__all__ = ["LabOptions", "run_lab"]


@dataclass(frozen=True, slots=True)
class LabOptions:
    """What the command line says."""

    host: str | None
    """None: loopback."""
    port: int
    seed: int
    mischief: str | None
    latency: float
    tokens: int | None
    retry_after: float
    api_key_env: str | None
    """The name of the environment variable that holds the key that requests to the model must carry."""
    json_log: Path | None


def run_lab(options: LabOptions) -> None:
    """Print the URL as the first line, and serve until SIGTERM or SIGINT. Raises `InputError`."""
    api_key = None
    if options.api_key_env is not None:
        api_key = os.environ.get(options.api_key_env)
        if not api_key:
            raise InputError(f"the environment variable {options.api_key_env} is not set")
    lab = Lab(
        seed=options.seed,
        mischief=options.mischief,
        latency=options.latency,
        tokens=options.tokens,
        host=options.host or "127.0.0.1",
        port=options.port,
        api_key=api_key,
        retry_after=options.retry_after,
        log=options.json_log,
    )
    told = threading.Event()
    before = {name: signal.signal(name, lambda *_: told.set()) for name in (signal.SIGTERM, signal.SIGINT)}
    try:
        with lab:
            print(lab.url, flush=True)
            print(
                f"evalbus lab: model at {lab.url}/v1, tickets at {lab.url}/tickets, what it did at {lab.url}/counts",
                file=sys.stderr,
                flush=True,
            )
            if not lab.is_loopback:
                print(f"evalbus lab: whoever can reach {lab.host} can use it", file=sys.stderr, flush=True)
            told.wait()
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
