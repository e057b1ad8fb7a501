"""The values that pass between the roles and the bus: what a batch declares, how a run stands, who holds what.

They mean the same on both buses; `bus.port` is the interface that takes and gives them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from bus.types import BatchId, ConsumerId, Digest, EntryId, Gen, LeaseId, Plane, RunId

__all__ = [
    "FREE_HAND_BACKS",
    "ITS_OWN_DOING",
    "LIMITS",
    "UNFIT_ALL",
    "UNFIT_ALONE",
    "UNFIT_MACHINES",
    "BatchInfo",
    "BatchSpec",
    "BatchStatus",
    "Counters",
    "Entry",
    "Event",
    "Group",
    "Held",
    "Judgement",
    "NextRuns",
    "PartOf",
    "Ref",
    "RunEnd",
    "RunRow",
    "RunState",
]


class Group(StrEnum):
    """The consumer groups, each with the stream that it reads."""

    PLANNER = "planner"
    WORKER = "worker"
    SCORER = "scorer"
    TOOLS = "tools"
    """The worker group as it reads its second stream."""

    @property
    def stream(self) -> str:
        """The batch's stream that this group reads: `results`, `runs`, `scores` or `tools`."""
        return {"planner": "results", "worker": "runs", "scorer": "scores", "tools": "tools"}[self.value]

    @property
    def on_server(self) -> str:
        """The consumer group's name on the server: workers read two streams, under one name."""
        return "worker" if self is Group.TOOLS else self.value


class BatchStatus(StrEnum):
    """Where a batch stands. `drained`: every run was admitted; `closed` and `inconclusive` are ends."""

    OPEN = "open"
    DRAINED = "drained"
    CLOSED = "closed"
    INCONCLUSIVE = "inconclusive"
    PRUNED = "pruned"
    """It is not there any more; its archive is. In the registry only."""

    @property
    def ended(self) -> bool:
        """True for the two ends of a batch that is there."""
        return self in (BatchStatus.CLOSED, BatchStatus.INCONCLUSIVE)

    @property
    def shown(self) -> str:
        """The word for people and for `--json`: a batch that drains is still open to its readers."""
        return (BatchStatus.OPEN if self is BatchStatus.DRAINED else self).value


class RunState(StrEnum):
    """The life of a run; `scored` and `hole` are ends."""

    QUEUED = "queued"
    RUNNING = "running"
    SEALED = "sealed"
    SCORING = "scoring"
    SCORED = "scored"
    HOLE = "hole"

    @property
    def ended(self) -> bool:
        """True for the two ends."""
        return self in (RunState.SCORED, RunState.HOLE)


@dataclass(frozen=True, slots=True)
class PartOf:
    """Of which whole a batch is a part: see `bus.partitions`."""

    number: int
    """From 1 …"""
    of: int
    """… to this."""
    intended: int
    """Runs of the whole."""
    quorum: int
    """The whole's."""


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """What a batch declares when it is created; it never changes afterwards."""

    batch: BatchId
    suite: str
    suite_digest: Digest
    suite_path: str
    intended: int
    quorum: int
    bins: tuple[str, ...]
    bound: int
    max_in_flight: int
    max_deliveries: int
    lease_ms: int
    judge_policy: str = "reject"
    replay_budget: int = 0
    reclaim_ms: int = 60_000
    gate: Mapping[str, float | int | str | Sequence[str]] = field(default_factory=dict)
    """The gate's rules, as JSON has them: `workers.gating.rules`."""
    candidate: str = ""
    judge: str = ""
    limits: Mapping[str, int | str] = field(default_factory=dict)
    """What other fences are configured with: `LIMITS` names them. Structured ones as JSON text."""
    tree_ignore: tuple[str, ...] = ()
    """Patterns of what is left out of a sealed workspace: a part of its tree's hash, whoever computes it."""
    source: str = ""
    """The closed batch whose sealed runs are scored anew here; then nothing is admitted, and no solver runs."""
    part: PartOf | None = None
    """For a part of a partitioned batch: of what."""
    first_of: int | None = None
    """Runs of the whole suite, of which this batch, or the whole of which it is a part, was given the first ones …"""
    cases: tuple[str, ...] | None = None
    """… or those of these cases."""

    def as_fields(self) -> dict[str, Any]:
        """For JSON. What came later and does not apply is left out: then it is as in all batches of older releases."""
        return {name: value for name, value in asdict(self).items() if name not in _LATER or value is not None}

    @classmethod
    def from_json(cls, text: str | bytes) -> BatchSpec:
        """As it was declared. Raises ValueError, TypeError for a declaration of another release."""
        fields = json.loads(text)
        for name in ("bins", "tree_ignore"):
            fields[name] = tuple(fields.get(name, ()))
        if fields.get("cases") is not None:
            fields["cases"] = tuple(fields["cases"])
        if fields.get("part") is not None:
            fields["part"] = PartOf(**fields["part"])
        return cls(**fields)


_LATER = ("part", "first_of", "cases")

FREE_HAND_BACKS: Final = 20
"""Of a run by who had to stop, before the next one counts as an attempt: see `hand_back` in `lua/include/run.lua`."""

UNFIT_MACHINES, UNFIT_ALONE, UNFIT_ALL = 5, 10, 100
"""Machines that are unfit for a run, hand-backs of it by such while nobody else was at work, and such at all: with that
many it is the run's own doing. See `note_unfit` there."""

ITS_OWN_DOING: Final = "its_own_doing"
"""The reason for which such a run is not handed back."""

LIMITS = (
    "capacity",
    "ack_bound_ms",
    "inverses",
    "compute_retries",
    "model_retries",
    "heartbeat_ms",
    "schemas",
    "budget",
    "budget_epoch",
    "model_slots",
    "judge_slots",
)
"""The fields that `BatchSpec.limits` may have."""


@dataclass(frozen=True, slots=True)
class Counters:
    """A batch's own counters, read from one hash: they never need a scan."""

    status: BatchStatus
    intended: int
    quorum: int
    cursor: int
    """Runs that were admitted, or abandoned: the next one stands there in the suite's order."""
    running: int
    sealed: int
    scoring: int
    scored: int
    holes: int
    in_flight: int
    """Places taken at the desk of runs: admitted and not yet ended."""
    bins: Mapping[str, int]
    hole_reasons: Mapping[str, int]
    refusals: Mapping[str, int]
    review: int
    snapshot_id: str | None
    spent: int = 0
    durable: int = 0
    reserved: int = 0
    """Tokens that open model calls may still spend."""
    estimated: int = 0
    """Of those spent: by a guess, where no figure of the endpoint's was to be had."""
    effects_open: int = 0
    """Intents that have not ended; the batch closes when there are none."""
    stuck: int = 0
    """Intents whose effect nobody knows and nobody can undo."""

    @property
    def admitted(self) -> int:
        """The cursor, to whoever looks on."""
        return self.cursor


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch as the registry and its hash tell it."""

    spec: BatchSpec
    status: BatchStatus
    plane: Plane
    incarnation: str
    imported: str = ""
    """The head of the history that it was read back from, to be looked at; empty for a batch that lives here."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message as delivered. `run` is empty when the entry cannot be read; `deliveries` counts this one."""

    batch: BatchId
    group: Group
    id: EntryId
    run: RunId
    fields: Mapping[str, str]
    deliveries: int = 1


@dataclass(frozen=True, slots=True)
class NextRuns:
    """The next runs of a batch, as a planner lets them in."""

    cursor: int
    """Where the first of them stands in the suite's order."""
    runs: Sequence[RunId]
    read: Sequence[Entry]
    """Wake-ups that are acknowledged with it."""
    consumer: ConsumerId
    candidate: str
    judge: str
    """With `candidate`: whom each run's score is bound to."""
    expected: int = 0
    """Tokens that one run is thought to cost; a run is admitted while the budget has room for it."""

    def first(self, count: int) -> NextRuns:
        """The same of so many runs at most."""
        return replace(self, runs=self.runs[:count])

    def as_fields(self) -> dict[str, Any]:
        """What its step is given beside the runs' and the wake-ups' names."""
        return {
            "consumer": self.consumer, "cursor": self.cursor, "runs": len(self.runs), "entries": len(self.read),
            "candidate": self.candidate, "judge": self.judge, "expected": self.expected,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ref:
    """A run's live token as its holder knows it: compared, number and random id, before anything is written."""

    batch: BatchId
    run: RunId
    lease_id: LeaseId
    gen: Gen
    conversation: int = 0
    """Grows with each `turn`; its chain is `<run>~<conversation>`."""
    epoch: int = 0
    """Of its workspace; 0 where the batch declares no `heartbeat_ms`, and so has none that is fenced."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a consumer holds and must keep alive: leases, and entries that were read but not claimed yet."""

    leases: Sequence[Ref] = ()
    entries: Sequence[Entry] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a transcript: `seq` from 1; `payload` is text (JSON); `gen` wrote it."""

    seq: int
    payload: str
    gen: Gen


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a scorer presents: the identities that it observed, the tree that it judged, and its verdict."""

    head: Digest
    tree_hash: str
    candidate: str
    judge: str
    judge_epoch: int
    bin: str
    value: str
    detail: str = ""
    """What is to be said of the run when another judge or candidate answered than was bound."""

    @property
    def score_digest(self) -> Digest:
        """What a judge signs: SHA-256 over the sealed head, the bin and the value, each on a line."""
        text = f"{self.head}\n{self.bin}\n{self.value}"
        return Digest(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


class RunEnd(NamedTuple):
    """How one run stands, as far as a snapshot is made of it."""

    run: RunId
    state: RunState
    epoch: int
    digest: str
    bin: str
    value: str
    hole: str


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run as it stands: enough for a snapshot row, a hole or a line of `status`."""

    run: RunId
    state: RunState
    gen: int
    attempts: int
    score_attempts: int
    entry: str
    head: str
    length: int
    epoch: int
    digest: str
    bin: str
    value: str
    hole: str
    consumer: str
    detail: str = ""
    judge_epoch: int = 0
    conversation: int = 0
    tree: str = ""
    artifact: str = ""
