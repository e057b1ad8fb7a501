"""`evalbus report`: a batch, or an exported history, as one page."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from bus.cluster import ServerBus
from bus.types import BatchId
from workers.files import writing_whole
from workers.histories.history_files import check_other
from workers.reporting.facts import Facts
from workers.reporting.gather import Fetched, fetched, gathered
from workers.reporting.page import write_page

__all__ = ["Fetch", "fetching", "page_of", "say", "write_report"]

Fetch: TypeAlias = Callable[[ServerBus, BatchId], Coroutine[Any, Any, Fetched]]


def page_of(named: str) -> Path:
    """Where the page goes when nobody says: `nightly.html`, here, of a batch and of `old/nightly.jsonl.zst` alike."""
    stem = re.sub(r"(\.jsonl?)?(\.zst)?$", "", Path(named).name)
    return Path(f"{'report' if stem in ('', '-') else stem}.html")


@contextlib.contextmanager
def fetching(archive: Path | None = None) -> Iterator[Fetch]:
    """What takes a batch from a server, into files that are there until the block ends; see `fetched`.

    Only this needs the server: the page, which may take a minute, is made when the connection is closed.
    """
    with tempfile.TemporaryDirectory(prefix="evalbus-report-") as directory:
        yield lambda bus, batch: fetched(bus, batch, Path(directory), archive)


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
