"""`evalbus report`: a batch, or an exported history, as one page."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from bus.cluster import ServerBus
from bus.types import BatchId
from workers.files import check_writable, writing_whole
from workers.history_files import check_other
from workers.reporting.facts import Facts
from workers.reporting.gather import Fetched, fetched, gathered
from workers.reporting.page import write_page
from workers.whole import whole_of

__all__ = ["Fetch", "fetching", "say", "write_report"]

Fetch: TypeAlias = Callable[[ServerBus, BatchId], Coroutine[Any, Any, list[tuple[Fetched, Path]]]]


@contextlib.contextmanager
def fetching(output: Path, archive: Path | None = None) -> Iterator[Fetch]:
    """What takes a batch from a server, into files that are there until the block ends; see `fetched`.

    It gives each history with the page that is to be made of it: one, or of a partitioned batch one for each partition,
    `FILE.p1.html` and so on. Only this needs the server: the pages, which may take a minute, are made when the
    connection is closed.
    """
    with tempfile.TemporaryDirectory(prefix="evalbus-report-") as directory:
        yield lambda bus, batch: _fetched(bus, batch, output, Path(directory), archive)


async def _fetched(
    bus: ServerBus, batch: BatchId, output: Path, directory: Path, archive: Path | None
) -> list[tuple[Fetched, Path]]:
    whole = await whole_of(bus, batch)
    if whole is None or not whole.is_partitioned:
        return [(await fetched(bus, batch, directory, archive), output)]
    pages = [output.with_name(f"{output.stem}.p{number}{output.suffix}") for number in range(1, len(whole.parts) + 1)]
    for page in pages:
        check_writable(page)
    found = []
    for part, page in zip(whole.batches, pages, strict=True):
        own = directory / part
        own.mkdir()
        found.append((await fetched(bus, part, own, archive), page))
    return found


def write_report(history: str | Fetched, output: Path) -> Facts:
    """Write the page, whole or not at all, and give what is on it.

    Raises InputError for what is no export or not all of one, DiffersError for a history that is not true.
    """
    if isinstance(history, str):
        check_other(history, output)
    with gathered(history) as report, writing_whole(output) as out:
        write_page(report.facts, report.details(), out)
        return report.facts


def say(facts: Facts, output: Path) -> None:
    """What was written, on standard error, as `export` does."""
    runs = "1 run" if len(facts.runs) == 1 else f"{len(facts.runs):,} runs"
    print(f"wrote {output}: {runs} of batch {facts.outcome.batch}, {facts.outcome.state}", file=sys.stderr)
