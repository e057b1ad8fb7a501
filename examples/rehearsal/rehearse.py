"""Rehearse a bad day: what evalbus promises, counted against a lab endpoint that misbehaves, processes killed.

    python examples/rehearsal/rehearse.py commits|billing|budget|fanout|remote|hang|canary|all [--seed N] [--size N]

Each takes some seconds, needs no network and no key, and prints what was counted. Exit 0: it holds; 5: it does not.
"""

import argparse
import importlib
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from findings import Findings
from place import Place, Violated

NAMES = ("commits", "billing", "budget", "fanout", "remote", "hang", "canary")


def rehearse(name: str, seed: int, size: int | None) -> bool:
    """Whether it holds."""
    try:
        found = importlib.import_module(f"rehearsals.{name}").rehearse(seed, size)
    except Violated as violated:
        found = Findings(name, violated=[str(violated)])
    found.show()
    return not found.violated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=[*NAMES, "all"])
    parser.add_argument("--seed", type=int, default=7, help="decides what misbehaves, and who is killed")
    parser.add_argument("--size", type=int, help="how many runs (commits: for each point; remote: programs)")
    parser.add_argument("--keep", action="store_true", help="keep the directory, with its logs and its server's data")
    given = parser.parse_args()
    Place.kept = given.keep
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # through what has to be cleared away
    wanted = NAMES if given.what == "all" else (given.what,)
    held = [rehearse(name, given.seed, given.size) for name in wanted]
    sys.exit(0 if all(held) else 5)


if __name__ == "__main__":
    main()
