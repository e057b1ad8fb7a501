"""`python -m workers.benching.crash`: look at the queues, print the table, write the files."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

from bus.errors import EvalbusError
from workers.benching.crash.comparing import MISFORTUNES, QUEUES, run_crash
from workers.files import check_writable, write_whole


def main() -> int:
    """The exit code."""
    asked = argparse.ArgumentParser(prog="python -m workers.benching.crash", description="What queues do in a crash.")
    asked.add_argument("--queues", default=",".join(QUEUES), help="names, with commas; default: all")
    asked.add_argument("--only", default=",".join(MISFORTUNES), help="misfortunes, with commas; default: all")
    asked.add_argument("--json", type=Path, help="also write what was observed here")
    asked.add_argument("--markdown", type=Path, help="also write the table here")
    given = asked.parse_args()
    try:
        for file in (given.json, given.markdown):
            if file is not None:
                check_writable(file)
        table = asyncio.run(run_crash(given.queues.split(","), _tell, given.only.split(",")))
        if given.json is not None:
            write_whole(given.json, json.dumps(table.as_json(), indent=1) + "\n")
        if given.markdown is not None:
            write_whole(given.markdown, table.markdown())
    except EvalbusError as error:
        print(f"evalbus: {error}", file=sys.stderr)
        return error.exit_code
    print(table.markdown(), end="")
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
