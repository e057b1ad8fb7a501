"""One history, held against every property.

checker = Checker("nightly.jsonl")
for raw in file:
    checker.feed(raw)
found = checker.finish(Books(tokens=lab.counts.model.billed))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from bus.checker.admission import Admission
from bus.checker.board import Board
from bus.checker.checked import Books, Checked
from bus.checker.closing import Closing
from bus.checker.completion import Completion
from bus.checker.effects import Outside
from bus.checker.histogram import Histogram
from bus.checker.indoubt import InDoubt
from bus.checker.join import Join
from bus.checker.judge import Judge
from bus.checker.ledger import Ledger
from bus.checker.lines import Header, Lines
from bus.checker.outbox import Outbox
from bus.checker.plane import Plane
from bus.checker.runs import Runs
from bus.checker.said import Said
from bus.checker.sandbox import Sandbox
from bus.checker.setting import Fence, Setting
from bus.checker.transcript import Transcript
from bus.checker.workspace import Workspace

__all__ = ["Checker"]

_T = TypeVar("_T")
_UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a line raises that has not the form of its operation: it is told as such, and reading goes on."""


class Checker:
    """Reads an export line by line. Memory grows with its runs and their steps, not with its lines."""

    def __init__(self, source: str, *, timed: bool = True) -> None:
        """`source`: how errors name the file.

        `timed`: bounds are compared with the entries' times. False where the server's clock was made to jump: those
        properties then have examined nothing.
        """
        self._timed = timed
        self._board = Board()
        self._lines = Lines(source, self._board)
        self._readers: _Readers | None = None
        self._parts: list[Said] = []

    def feed(self, raw: bytes) -> None:
        """The next line of the file, its newline included. Raises InputError for one that is no export."""
        said = self._lines.feed(raw)
        if self._readers is None and self._lines.header is not None:
            self._readers = _Readers(self._board, self._lines.header, self._timed)
        if said is None:
            return
        if self._parts and self._parts[0].entry != said.entry:
            self._flush()
        self._parts.append(said)

    def _flush(self) -> None:
        parts, readers = self._parts, self._readers
        self._parts = []
        if not parts or readers is None:
            return
        step = f"{parts[0].fence}.{parts[0].op}"
        if step == "run.create" and parts[0].done:
            self._try(self._lines.check_declaration, parts[0], parts[0])
        for said in parts:
            fence = readers.fences.get(said.fence)
            if fence is not None:
                self._try(fence.take, said, said)
        for joint in (readers.runs.take, readers.closing.take, readers.outside.take):
            self._try(joint, parts, parts[0])
        if step == "run.restarted" and parts[0].done:
            self._try(readers.void, parts[0], parts[0])

    def _try(self, take: Callable[[_T], None], given: _T, said: Said) -> None:
        try:
            take(given)
        except _UNFIT as error:
            self._lines.unfit(said, f"{said.fence}.{said.op} is not given what it takes: {error!r}")

    def _try_at_the_end(self, end: Callable[[], None]) -> None:
        try:
            end()
        except _UNFIT as error:
            self._lines.unfit("the end", f"what the lines lead to has no form: {error!r}")

    def finish(self, books: Books | None = None) -> Checked:
        """What it comes to; `books` are what the endpoint itself counted. Raises InputError for a truncated file."""
        self._lines.finish()
        self._flush()
        header, footer, readers = self._lines.header, self._lines.footer, self._readers
        assert header is not None and footer is not None and readers is not None  # else `finish` of the lines raised
        histogram, runs = readers.histogram, readers.runs
        if histogram.state != "open":
            for fence in readers.fences.values():
                self._try_at_the_end(fence.end)
            self._try_at_the_end(runs.end)
        self._try_at_the_end(lambda: readers.closing.end(footer.snapshot))
        self._try_at_the_end(lambda: readers.outside.end(header.plane, books))
        tokens = readers.outside.tokens(readers.ledger, books)
        scored = {str(name): str(run.row[2]) for name, run in histogram.runs.items() if run.row is not None}
        holes = Counter(str(run.hole) for run in histogram.runs.values() if run.hole is not None)
        return Checked(
            batch=header.batch,
            plane=header.plane,
            state=histogram.state,
            entries=self._lines.count,
            intended=header.policy["intended"],
            scored=dict(sorted(scored.items())),
            holes=dict(sorted(holes.items())),
            checks=self._board.checks(),
            leases=runs.leases,
            preempted=tuple(runs.preempted),
            redeliveries=runs.redeliveries,
            ended_ms={name: run.ended_ms for name, run in runs.runs.items() if run.ended},
            effects=readers.outside.effects,
            tokens=tokens,
        )


class _Readers:
    """Everybody who looks at the lines."""

    def __init__(self, board: Board, header: Header, timed: bool) -> None:
        setting = Setting(header.plane, header.policy, timed)
        self.histogram = Histogram(board, setting)
        outbox, indoubt = Outbox(board, setting), InDoubt(board, setting)
        self.ledger = Ledger(board, setting)
        self.fences: dict[str, Fence] = {
            "plane": Plane(board, setting),
            "outbox": outbox,
            "indoubt": indoubt,
            "completion": Completion(board, setting),
            "histogram": self.histogram,
            "judge": Judge(board, setting),
            "transcript": Transcript(board, setting),
            "sandbox": Sandbox(board, setting),
            "workspace": Workspace(board, setting),
            "ledger": self.ledger,
            "admission": Admission(board, setting),
            "join": Join(board, setting),
        }
        self.runs = Runs(board, setting)
        self.closing = Closing(board, setting, self.histogram, outbox, self.runs)
        self.outside = Outside(board, outbox, indoubt)

    def void(self, said: Said) -> None:
        """A restart of the server."""
        for fence in self.fences.values():
            fence.void(said.answer["floor"])
