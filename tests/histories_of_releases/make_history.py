"""Write the history that this release leaves to later ones.

    python -m tests.histories_of_releases.make_history tests/histories_of_releases/schema-2.jsonl.zst

To be run once, when the schema number is raised. A file that is there is left alone: what it proves is that histories
which were written long ago still hold, and one that is written anew proves nothing.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.batches import Batch
from tests.histories import parsed, whole_history
from tests.limits import FIRST_BUDGET
from tests.servers import Kind, running
from workers.histories.history_files import writing


async def _lines() -> list[bytes]:
    with running(Kind.VALKEY9) as server:
        batch = await Batch.open(server.target.address(), limits=FIRST_BUDGET)
        try:
            return await whole_history(batch)
        finally:
            await batch.aclose()


def main(file: Path) -> None:
    """Write it, and say its head, which `tests/test_replay.py` pins."""
    if file.exists():
        raise SystemExit(f"{file} is there: a history of a release is written once")
    lines = asyncio.run(_lines())
    with writing(file) as out:
        for line in lines:
            out.write(line)
    print(f"{len(lines) - 2} entries, head {parsed(lines[-1])['head']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
