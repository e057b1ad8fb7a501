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
import heapq
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.export_format import Line
from bus.policies import ALL, Policies, Prevented, together
from bus.replay.lines import Header
from bus.replay.replayed import Replayed
from bus.replay.telling import Told
from bus.types import BatchId, RunId
from workers.histories.exporting import export_batch
from workers.histories.history_files import LONGEST_LINE, files_of, name_of, reading
from workers.reporting.details import detail_of
from workers.reporting.facts import Chain, Facts, RunDetail, Tokens
from workers.reporting.index import Index
from workers.reporting.lives import Lives
from workers.results.derived import Derived, Deriving, derived_outcome, joined
from workers.results.fetching import existing
from workers.results.whole import counters_of, rows_of
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
    """Histories in files, where they came from, and what else is known of them: of files that were named, nothing."""

    files: tuple[str | Path, ...]
    """One; of a batch in partitions one for each."""
    source: str
    beside: Beside | None
    sources: tuple[str, ...]
    """Of each file, as messages name it."""
    alone: bool
    """Whether it is the history of a batch, or of one partition for itself."""

    @classmethod
    def of_files(cls, named: str | Path) -> Fetched:
        """What a user named; see `workers.histories.history_files.files_of`."""
        files = files_of(str(named))
        return cls(tuple(files), name_of(named), None, tuple(name_of(file) for file in files), len(files) == 1)


async def fetched(bus: ServerBus, batch: BatchId, directory: Path, archive: Path | None = None) -> Fetched:
    """Export a batch into files in `directory`, for `gathered`. Raises InputError when there is none of that name.

    `archive`: where its history was archived while it ran.
    """
    whole = await existing(bus, batch)
    files = []
    for part in whole.batches:
        files.append(directory / f"{part}.jsonl")
        await export_batch(bus, part, files[-1], archive)
    counters = await counters_of(bus, whole)
    said = {one.row.run: one.row.detail for one in await rows_of(bus, whole) if one.row.detail}
    beside = Beside(counters.spent, counters.estimated, said)
    sources = tuple(f"batch {part}" for part in whole.batches)
    return Fetched(tuple(files), f"batch {batch}", beside, sources, not whole.is_partitioned)


@dataclass(slots=True)
class Report:
    """The facts, and the files that the details are read from, for as long as `gathered` keeps them open."""

    facts: Facts
    _readers: list[_Reader]
    _lives: Lives
    _said: Mapping[RunId, str]

    def details(self) -> Iterator[RunDetail]:
        """Each run's, in the order of `facts.runs`. Raises InputError if a file was changed meanwhile."""
        before = [_state(reader.again) for reader in self._readers]
        with ticking("runs") as tick:
            for number, run in enumerate(self._lives.order):
                part = self._lives.part_of(run)
                reader = self._readers[part]
                try:
                    if _state(reader.again) != before[part]:
                        raise InputError("was changed while it was read", file=reader.source, remedy="ask again")
                    lines = list(reader.index.lines(reader.again, run))
                except OSError as error:
                    raise InputError(f"cannot be read: {error.strerror}", file=reader.source) from error
                said = self._said.get(RunId(run), "")
                yield detail_of(reader.batch, run, lines, name=f"run{number}", said=said)
                if number % _RUNS_A_TICK == 0:
                    tick(number)


@contextlib.contextmanager
def gathered(history: str | Path | Fetched, policies: Sequence[str] = (ALL,)) -> Iterator[Report]:
    """The report of a history: a file that `export` wrote, `-` for standard input, or a batch that was `fetched`.

    Of partitions, which have a history each, the lines are taken in the order of time.

    `policies`: the naive ones that it is compared with, by name; none for no comparison. Raises InputError for what is
    no export or not all of one, DiffersError for a history that is not true.
    """
    known = history if isinstance(history, Fetched) else Fetched.of_files(history)
    with contextlib.ExitStack() as kept:
        readers = [
            _Reader(part, file, source, policies, kept)
            for part, (file, source) in enumerate(zip(known.files, known.sources, strict=True))
        ]
        lives = Lives(len(readers))
        with contextlib.ExitStack() as opened, ticking("entries") as tick:
            told = [opened.enter_context(contextlib.closing(reader.lines())) for reader in readers]
            for number, one in enumerate(told[0] if len(told) == 1 else heapq.merge(*told, key=_when)):
                one.reader.index.add(one.line, lives.take(one.line, one.reader.part), one.place)
                if number % _LINES_A_TICK == 0:
                    tick(number)
        lives.finish()
        facts = _facts(known, readers, lives)
        # Out of `reading`, which takes any failure for one of its file: what fails from here on is the caller's.
        yield Report(facts, readers, lives, known.beside.said if known.beside is not None else {})


def _to_be_read_again(file: BinaryIO, kept: contextlib.ExitStack) -> BinaryIO:
    """A plain file as it is, whatever is moved to its name meanwhile; of a pipe or an archive a copy, empty as yet."""
    if file.seekable():
        return kept.enter_context(os.fdopen(os.dup(file.fileno()), "rb"))
    return cast(BinaryIO, kept.enter_context(tempfile.TemporaryFile()))


def _state(file: BinaryIO) -> tuple[int, int]:
    state = os.fstat(file.fileno())
    return state.st_mtime_ns, state.st_size


class _Read(NamedTuple):
    """A line of a history, found true, and where its first byte is in the file. There are millions: see `Told`."""

    at: tuple[int, int]
    """Its entry's time, by the server's clock in ms, and its number there."""
    line: Line
    place: int
    reader: _Reader


def _when(one: _Read) -> tuple[int, int]:
    return one.at


class _Reader:
    """One history, read for the first time."""

    def __init__(
        self, part: int, file: str | Path, source: str, policies: Sequence[str], kept: contextlib.ExitStack
    ) -> None:
        """`part`: which of the batch's histories it is, from 0. What is read again is closed with `kept`."""
        self.part, self.source, self.index = part, source, Index()
        self._file, self._kept = file, kept
        self._deriving, self._policies = Deriving(source), Policies(policies)
        self._derived: Derived | None = None
        self._again: BinaryIO | None = None

    @property
    def derived(self) -> Derived:
        """What it came to, when all lines were read."""
        assert self._derived is not None, "it was not read to its end"
        return self._derived

    @property
    def again(self) -> BinaryIO:
        """The same bytes, to be read again."""
        assert self._again is not None, "it was not read"
        return self._again

    @property
    def batch(self) -> str:
        """Whose it is; a partition's own name."""
        return self.derived.header.batch

    def prevented(self) -> tuple[Prevented, ...]:
        """What the policies say, when all lines were read."""
        return self._policies.finish()

    def lines(self) -> Generator[_Read]:
        """In order. Raises as `gathered`."""
        with reading(self._file) as opened:
            again, place = _to_be_read_again(opened, self._kept), opened.tell() if opened.seekable() else 0
            self._again = again
            while raw := opened.readline(LONGEST_LINE):
                said = self._deriving.feed(raw)
                if not opened.seekable():
                    again.write(raw)
                if isinstance(said, Header):
                    self._policies.start(said.policy)
                elif isinstance(said, Told):
                    self._policies.feed(said)
                    line = Line(
                        said.id, said.fence, said.op, said.verb, said.reason, said.envelope, said.args, said.answer
                    )
                    ms, _, number = said.entry.partition("-")
                    yield _Read((int(ms), int(number)), line, place, self)
                place += len(raw)
            self._derived = self._deriving.finish()
        again.flush()


def _facts(known: Fetched, readers: Sequence[_Reader], lives: Lives) -> Facts:
    derived, beside = joined([reader.derived for reader in readers], alone=known.alone), known.beside
    header, found = derived.header, derived.found
    tokens = _tokens(header, found, beside)
    outcome = derived_outcome(derived, beside.said if beside is not None else {}, tokens.estimated or 0)
    prevented = together([reader.prevented() for reader in readers])
    if not outcome.status.ended:  # an open batch has no pass rate, and so none that it could be compared with
        prevented = tuple(replace(one, rate=()) for one in prevented)
    return Facts(
        outcome=outcome,
        source=known.source,
        began_unix_ms=lives.began_unix_ms,
        ended_unix_ms=lives.ended_unix_ms if not derived.parts or outcome.status.ended else None,
        head=found.head,
        entries=found.entries,
        runs=lives.runs(),
        refusals=lives.refusals(),
        timeline=lives.timeline(),
        tokens=tokens,
        prevented=prevented,
        chains=tuple(Chain(one.found.batch, one.found.entries, one.found.head) for one in derived.parts),
    )


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
