"""Where a batch comes from: a server, a history that was exported from one, or a snapshot that was frozen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.port import BatchStatus
from bus.replay.lines import Footer, Header
from bus.replay.replayed import Replay, Replayed
from bus.replay.telling import Told
from bus.snapshot import Snapshot
from bus.types import RunId
from workers.derived import derived_outcome
from workers.gating.snapshot_file import Frozen, freeze, frozen
from workers.history_files import LONGEST_LINE, name_of, reading
from workers.job import batch_name, fetched
from workers.outcome import Outcome
from workers.ticking import ticking

__all__ = ["Found", "from_bus", "from_file"]

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

    def freeze(self, file: Path) -> None:
        """See `workers.gating.snapshot_file`. Raises InputError."""
        if self.snapshot is None:
            raise InputError(f"batch {self.outcome.batch!r} is open: there is no snapshot to freeze")
        freeze(Frozen(self.outcome, self.snapshot, self.suite, self.suite_digest, self.candidate, self.gate), file)


async def from_bus(bus: ServerBus, named: str) -> Found:
    """A batch on a server. Raises InputError when there is none of that name."""
    batch = await fetched(bus, batch_name(named))
    info, closing = batch.whole.info, batch.closing
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
    )


def from_file(named: str) -> Found:
    """A history, replayed, or a snapshot file. Raises InputError, ViolationError (DiffersError for a history)."""
    name = name_of(named)
    with reading(named) as lines:
        first = lines.readline(LONGEST_LINE)
        if _begins_a_snapshot(first):
            one = frozen(first + lines.read(), name)
            return Found(one.outcome, name, one.suite, one.suite_digest, one.candidate, "", one.gate, one.snapshot)
        reader = _Reader(name)
        with ticking("entries") as tick:
            while first:
                reader.feed(first)
                if reader.replay.entries % _TICK == 0:
                    tick(reader.replay.entries)
                first = lines.readline(LONGEST_LINE)
        return reader.found()


def _begins_a_snapshot(line: bytes) -> bool:
    return line.strip() == b"{" or (line.startswith(b"{") and b'"evalbus-snapshot"' in line[:100])


class _Reader:
    """One history: derived again, line by line, with what it declared."""

    def __init__(self, name: str) -> None:
        self.replay = Replay(name)
        self._name = name
        self._header: Header | None = None
        self._spec: Mapping[str, Any] = {}

    def feed(self, raw: bytes) -> None:
        said = self.replay.feed(raw)
        if isinstance(said, Header):
            self._header = said
        elif isinstance(said, Footer):
            return
        elif not self._spec and _declares(said):
            self._spec = json.loads(said.envelope["spec"])

    def found(self) -> Found:
        replayed = self.replay.finish()
        assert self._header is not None, "a history without its first line is none"
        suite, spec = self._header.suite, self._spec
        return Found(
            outcome=derived_outcome(self._header, replayed),
            name=self._name,
            suite=str(suite.get("name", "")),
            suite_digest=str(suite.get("digest", "")),
            candidate=str(spec.get("candidate", "")),
            judge=str(spec.get("judge", "")),
            gate=self._header.policy["gate"],
            snapshot=_snapshot(self._header, replayed),
        )


def _declares(told: Told) -> bool:
    return (told.fence, told.op, told.verb) == ("run", "create", "commit")


def _snapshot(header: Header, found: Replayed) -> Snapshot | None:
    if not BatchStatus(found.status).ended:
        return None
    policy = header.policy
    bins = {name: found.bins.get(name, 0) for name in policy["bins"]}
    holes = {run: found.holes[run] for run in sorted(found.holes)}
    return Snapshot(
        policy["intended"], policy["quorum"], bins, holes, tuple(found.rows[run] for run in sorted(found.rows))
    )
