"""A history → the facts of its report, and after them one run's details at a time.

with gathered("nightly.jsonl.zst") as report:
    report.facts                           # every figure of the page
    for detail in report.details():        # in the order of `facts.runs`
        …

The history is read twice. The first time it is replayed, every decision derived again: nobody gets a report of a
history that is not true, and every figure is one that follows from it. Then each run's lines are looked up where they
stand. Memory grows with the runs and their requests; of the lines only their places are kept.

A batch on a server is exported into a file first: so the report is of one moment, and has a head to compare.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, cast

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.history import Line
from bus.policies import ALL, Policies, Prevented
from bus.port import BatchStatus
from bus.replay.lines import Header
from bus.replay.replayed import Replay, Replayed
from bus.replay.telling import Told
from bus.types import BatchId, RunId
from workers.derived import derived_outcome
from workers.exporting import export_batch
from workers.held_loops import rows_with_held_loops
from workers.history_files import LONGEST_LINE, name_of, reading
from workers.reporting.details import detail_of
from workers.reporting.facts import Facts, RunDetail, Tokens
from workers.reporting.index import Index
from workers.reporting.lives import Lives
from workers.ticking import ticking

__all__ = ["Beside", "Fetched", "Report", "fetched", "gathered"]

_LINES_A_TICK, _RUNS_A_TICK = 20_000, 100


@dataclass(frozen=True, slots=True)
class Beside:
    """What a server knows of a batch and the history does not hold."""

    spent: int
    estimated: int
    """Of the tokens that were spent when it was `spent`: by a guess."""
    said: Mapping[RunId, str]
    """Run to what its solver or scorer said of its end, where it said anything."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A history in a file, where it came from, and what else is known of it: for a file that was named, nothing."""

    file: str | Path
    source: str
    beside: Beside | None


async def fetched(bus: ServerBus, batch: BatchId, directory: Path, archive: Path | None = None) -> Fetched:
    """Export a batch into a file in `directory`, for `gathered`. Raises InputError when there is none of that name.

    `archive`: where its history was archived while it ran.
    """
    file = directory / "history.jsonl"
    await export_batch(bus, batch, file, archive)
    counters = await bus.counters(batch)
    rows = await rows_with_held_loops(bus, batch, await bus.run_ids(batch))
    said = {row.run: row.detail for row in rows if row.detail}
    return Fetched(file, f"batch {batch}", Beside(counters.spent, counters.estimated, said))


@dataclass(slots=True)
class Report:
    """The facts, and the file that the details are read from, for as long as `gathered` keeps it open."""

    facts: Facts
    _file: BinaryIO
    _index: Index
    _runs: list[str]
    _said: Mapping[RunId, str]

    def details(self) -> Iterator[RunDetail]:
        """Each run's, in the order of `facts.runs`. Raises InputError if the file was changed meanwhile."""
        before = _state(self._file)
        with ticking("runs") as tick:
            for number, run in enumerate(self._runs):
                try:
                    if _state(self._file) != before:
                        raise InputError("was changed while it was read", file=self.facts.source, remedy="ask again")
                    lines = list(self._index.lines(self._file, run))
                except OSError as error:
                    raise InputError(f"cannot be read: {error.strerror}", file=self.facts.source) from error
                said = self._said.get(RunId(run), "")
                yield detail_of(self.facts.outcome.batch, run, lines, name=f"run{number}", said=said)
                if number % _RUNS_A_TICK == 0:
                    tick(number)


@contextlib.contextmanager
def gathered(history: str | Path | Fetched, policies: Sequence[str] = (ALL,)) -> Iterator[Report]:
    """The report of a history: a file that `export` wrote, `-` for standard input, or a batch that was `fetched`.

    `policies`: the naive ones that it is compared with, by name; none for no comparison. Raises InputError for what is
    no export or not all of one, DiffersError for a history that is not true.
    """
    known = history if isinstance(history, Fetched) else Fetched(history, name_of(history), None)
    reader, beside = _Reader(known.source, policies), known.beside
    with contextlib.ExitStack() as kept:
        with reading(known.file) as opened:
            again, place = _to_be_read_again(opened, kept), opened.tell() if opened.seekable() else 0
            with ticking("entries") as tick:
                while raw := opened.readline(LONGEST_LINE):
                    reader.feed(raw, place)
                    place += len(raw)
                    if not opened.seekable():
                        again.write(raw)
                    if reader.entries % _LINES_A_TICK == 0:
                        tick(reader.entries)
        facts = reader.facts(beside)
        again.flush()
        # Out of `reading`, which takes any failure for one of its file: what fails from here on is the caller's.
        yield Report(facts, again, reader.index, reader.lives.order, beside.said if beside is not None else {})


def _to_be_read_again(file: BinaryIO, kept: contextlib.ExitStack) -> BinaryIO:
    """A plain file as it is, whatever is moved to its name meanwhile; of a pipe or an archive a copy, empty as yet."""
    if file.seekable():
        return kept.enter_context(os.fdopen(os.dup(file.fileno()), "rb"))
    return cast(BinaryIO, kept.enter_context(tempfile.TemporaryFile()))


def _state(file: BinaryIO) -> tuple[int, int]:
    state = os.fstat(file.fileno())
    return state.st_mtime_ns, state.st_size


class _Reader:
    """One history, read for the first time."""

    def __init__(self, source: str, policies: Sequence[str]) -> None:
        self.index, self.lives = Index(), Lives()
        self._replay, self._policies = Replay(source), Policies(policies)
        self._header: Header | None = None

    @property
    def entries(self) -> int:
        return self._replay.entries

    def feed(self, raw: bytes, place: int) -> None:
        said = self._replay.feed(raw)
        if isinstance(said, Header):
            self._header = said
            self._policies.start(said.policy)
        elif isinstance(said, Told):
            line = Line(said.id, said.fence, said.op, said.verb, said.reason, said.envelope, said.args, said.answer)
            self.index.add(line, self.lives.take(line), place)
            self._policies.feed(said)

    def facts(self, beside: Beside | None) -> Facts:
        found, lives = self._replay.finish(), self.lives
        assert self._header is not None, "a history without its first line is none"
        lives.finish()
        tokens = _tokens(self._header, found, beside)
        return Facts(
            outcome=derived_outcome(
                self._header, found, beside.said if beside is not None else {}, tokens.estimated or 0
            ),
            source=self._replay.source,
            began_unix_ms=lives.began_unix_ms,
            ended_unix_ms=lives.ended_unix_ms,
            head=found.head,
            entries=found.entries,
            runs=lives.runs(),
            refusals=lives.refusals(),
            timeline=lives.timeline(),
            tokens=tokens,
            prevented=self._prevented(is_open=not BatchStatus(found.status).ended),
        )

    def _prevented(self, *, is_open: bool) -> tuple[Prevented, ...]:
        """An open batch has no pass rate, and so none that it could be compared with."""
        found = self._policies.finish()
        return tuple(replace(one, rate=()) for one in found) if is_open else found


def _tokens(header: Header, found: Replayed, beside: Beside | None) -> Tokens:
    # What is spent late is counted on the server behind the history that was fetched: then this is another moment's.
    is_same = beside is not None and beside.spent == found.spent
    return Tokens(
        spent=found.spent,
        durable=found.durable,
        orphan=found.spent - found.durable,
        estimated=beside.estimated if beside is not None and is_same else None,
        reserved=found.reserved,
        budget=header.policy["limits"].get("budget"),
    )
