"""Where a batch comes from: a server, a history that was exported from one, or a snapshot that was frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.snapshot import Snapshot
from bus.types import RunId
from workers.gating.snapshot_file import Frozen, freeze, frozen
from workers.histories.history_files import LONGEST_LINE, files_of, name_of, reading
from workers.naming import batch_name
from workers.results.derived import Derived, Deriving, derived_outcome, joined, snapshot_of
from workers.results.fetching import fetched
from workers.results.outcome import Outcome
from workers.results.showing import Shown, shown_of
from workers.ticking import ticking

__all__ = ["Found", "from_bus", "from_file"]

_ANSWERS = 1_000
_TICK = 20_000  # lines between two looks at the progress


@dataclass(frozen=True, slots=True)
class Found:
    """A batch, wherever it was."""

    outcome: Outcome
    name: str
    """How messages name it."""
    suite: str
    suite_digest: str
    candidate: str
    judge: str
    gate: Mapping[str, Any]
    """The rules that it declared."""
    snapshot: Snapshot | None
    """None until it has ended."""
    suite_path: str = ""
    """Where its suite lies on the machine that made it; empty for a file, which may come from any."""
    said: Mapping[RunId, str] = field(default_factory=dict)
    """Run to what was said of its end, for those that were scored too."""
    wrong: Mapping[RunId, Shown] = field(default_factory=dict)
    """What was answered, for runs that did not pass, where that was asked for; a thousand at most."""

    def freeze(self, file: Path) -> None:
        """See `workers.gating.snapshot_file`. Raises InputError."""
        if self.snapshot is None:
            raise InputError(f"batch {self.outcome.batch!r} is open: there is no snapshot to freeze")
        freeze(Frozen(self.outcome, self.snapshot, self.suite, self.suite_digest, self.candidate, self.gate), file)


async def from_bus(bus: ServerBus, named: str, suite: Path | None = None, *, answers: bool = False) -> Found:
    """A batch on a server. Raises InputError when there is none of that name.

    `answers`: what those that did not pass answered, too, and what `suite`, or the one that it was made of, wanted.
    """
    batch = await fetched(bus, batch_name(named))
    info, closing = batch.whole.info, batch.closing
    passing = next(iter(batch.outcome.bins))
    wrong = [run for run, bin_ in batch.outcome.runs.items() if bin_ != passing][:_ANSWERS] if answers else []
    spec = info.spec
    return Found(
        outcome=batch.outcome,
        name=named,
        suite=spec.suite,
        suite_digest=spec.suite_digest,
        candidate=spec.candidate,
        judge=spec.judge,
        gate=spec.gate,
        snapshot=None if closing is None else closing.snapshot,
        suite_path="" if info.imported else spec.suite_path,
        said={} if closing is None else closing.details,
        wrong=await shown_of(bus, batch.whole, frozenset(wrong), suite) if wrong else {},
    )


def from_file(named: str) -> Found:
    """A history, or all partitions' of a batch, replayed; or a snapshot file.

    Raises InputError, ViolationError (DiffersError for a history).
    """
    name = name_of(named)
    derived = []
    for file in files_of(named):
        with reading(file) as lines:
            first = lines.readline(LONGEST_LINE)
            if _begins_a_snapshot(first):
                one = frozen(first + lines.read(), name)
                return Found(one.outcome, name, one.suite, one.suite_digest, one.candidate, "", one.gate, one.snapshot)
            derived.append(_derived(name_of(file), first, lines))
    return _found(name, joined(derived))


def _begins_a_snapshot(line: bytes) -> bool:
    return line.strip() == b"{" or (line.startswith(b"{") and b'"evalbus-snapshot"' in line[:100])


def _derived(name: str, first: bytes, lines: BinaryIO) -> Derived:
    """One history: derived again, line by line, with what it declared."""
    deriving, raw = Deriving(name), first
    with ticking("entries") as tick:
        while raw:
            deriving.feed(raw)
            if deriving.replay.entries % _TICK == 0:
                tick(deriving.replay.entries)
            raw = lines.readline(LONGEST_LINE)
    return deriving.finish()


def _found(name: str, derived: Derived) -> Found:
    header, declared = derived.header, derived.declared
    return Found(
        outcome=derived_outcome(derived),
        name=name,
        suite=str(header.suite.get("name", "")),
        suite_digest=str(header.suite.get("digest", "")),
        candidate=str(declared.get("candidate", "")),
        judge=str(declared.get("judge", "")),
        gate=header.policy["gate"],
        snapshot=snapshot_of(header, derived.found),
    )
