"""The interface through which every role reaches the bus.

Two buses stand behind it: the server with its scripts (`bus.redis_bus`), and in time the reference models composed in
memory. The roles know neither: they get a `Bus` and a `Runtime` (clock, sleep, randomness) from outside, so the very
same code can be run on a seeded scheduler in virtual time.

Every method that changes state is one script: it is applied whole or not at all, recorded in the batch's history, and
may be sent twice. A method raises `ServerUnreachable` only after its own patience has run out; until then it sends the
same command again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from bus.types import BatchId, ConsumerId, Decision, Digest, EntryId, Gen, LeaseId, Plane, RunId

__all__ = [
    "LIMITS",
    "BatchInfo",
    "BatchSpec",
    "BatchStatus",
    "Bus",
    "Counters",
    "Entry",
    "Event",
    "Group",
    "Held",
    "Judgement",
    "Ref",
    "RunRow",
    "RunState",
    "Runtime",
]


class Group(StrEnum):
    """The consumer groups, each with the stream that it reads."""

    PLANNER = "planner"
    WORKER = "worker"
    SCORER = "scorer"

    @property
    def stream(self) -> str:
        """The batch's stream that this group reads: `results`, `runs` or `scores`."""
        return {"planner": "results", "worker": "runs", "scorer": "scores"}[self.value]


class BatchStatus(StrEnum):
    """Where a batch stands. `drained`: every run was admitted; the last two are ends."""

    OPEN = "open"
    DRAINED = "drained"
    CLOSED = "closed"
    INCONCLUSIVE = "inconclusive"

    @property
    def ended(self) -> bool:
        """True for the two ends."""
        return self in (BatchStatus.CLOSED, BatchStatus.INCONCLUSIVE)


class RunState(StrEnum):
    """The life of a run; `scored` and `hole` are ends."""

    QUEUED = "queued"
    RUNNING = "running"
    SEALED = "sealed"
    SCORING = "scoring"
    SCORED = "scored"
    HOLE = "hole"


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
    gate: Mapping[str, float | int] = field(default_factory=dict)
    candidate: str = ""
    judge: str = ""
    limits: Mapping[str, int | str] = field(default_factory=dict)
    """What other fences are configured with: `LIMITS` names them. Structured ones as JSON text."""


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
)
"""The fields that `BatchSpec.limits` may have."""


@dataclass(frozen=True, slots=True)
class Counters:
    """A batch's own counters, read from one hash: they never need a scan."""

    status: BatchStatus
    intended: int
    quorum: int
    cursor: int
    admitted: int
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
    workers: int = 0
    scorers: int = 0


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch as the registry and its hash tell it."""

    spec: BatchSpec
    status: BatchStatus
    plane: Plane
    incarnation: str


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
class Ref:
    """A run's live token as its holder knows it: compared, number and random id, before anything is written."""

    batch: BatchId
    run: RunId
    lease_id: LeaseId
    gen: Gen


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

    @property
    def score_digest(self) -> Digest:
        """What a judge signs: SHA-256 over the sealed head, the bin and the value, each on a line."""
        text = f"{self.head}\n{self.bin}\n{self.value}"
        return Digest(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())


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


class Runtime(Protocol):
    """Clock, sleep and randomness, from outside: real ones in a process, seeded ones in a simulation."""

    def now(self) -> float:
        """Seconds on a monotonic clock; only differences mean anything."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    def token(self) -> str:
        """128 random bits as 32 hex digits: lease ids, command ids."""

    def jitter(self) -> float:
        """A random number in [0, 1)."""


class Bus(Protocol):
    """See the module's text. Decisions carry their answers in `decision.answer`."""

    # --- reading -----------------------------------------------------------------------------------------
    async def batches(self) -> list[BatchId]:
        """The batches that have not ended."""

    async def info(self, batch: BatchId) -> BatchInfo | None:
        """What a batch declared, or None when there is none of that name."""

    async def counters(self, batch: BatchId) -> Counters:
        """Progress: one read of the batch's hash."""

    async def rows(self, batch: BatchId, runs: Sequence[RunId]) -> list[RunRow]:
        """The rows of the given runs that exist, in the order given."""

    async def run_ids(self, batch: BatchId) -> list[RunId]:
        """Every run that was admitted or abandoned, in that order."""

    async def transcript(self, batch: BatchId, run: RunId) -> list[Event]:
        """The committed events of a run, in order."""

    async def read(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, block_ms: int
    ) -> list[Entry]:
        """New entries, at most about `count`; waits up to `block_ms` for the first."""

    async def own_pending(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int
    ) -> list[Entry]:
        """Entries that this consumer was given before and that are still pending for it."""

    async def take_idle(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, idle_ms: int
    ) -> list[Entry]:
        """Entries of silent consumers, now owned by this one."""

    async def dead_letter(self, entry: Entry, consumer: ConsumerId, why: str) -> None:
        """Copy an entry that cannot be read to the dead-letter stream and acknowledge it, by its owner only."""

    async def put_blob(self, batch: BatchId, data: bytes) -> Digest:
        """Store bytes under their own digest."""

    async def get_blob(self, batch: BatchId, digest: Digest) -> bytes:
        """Fetch and rehash; raises `ViolationError` when the bytes are not those that were named."""

    # --- planner -----------------------------------------------------------------------------------------
    async def create(self, spec: BatchSpec) -> Decision:
        """Declare a batch: `commit`, `duplicate` for the same declaration, `reject batch_mismatch` for another."""

    async def admit(
        self,
        batch: BatchId,
        cursor: int,
        runs: Sequence[RunId],
        read: Sequence[Entry],
        consumer: ConsumerId,
        candidate: str,
        judge: str,
    ) -> Decision:
        """Admit the next runs from `cursor` on while the desk has room. Answer: admitted, cursor, why_stopped."""

    async def abandon(self, batch: BatchId, cursor: int, runs: Sequence[RunId], why: str) -> Decision:
        """Name the next runs from `cursor` on holes: they were never admitted."""

    async def requeue(self, batch: BatchId, group: Group, run: RunId, entry: EntryId) -> Decision:
        """Emit a run's message anew when its group no longer knows the one that its row names."""

    async def sweep(self, batch: BatchId, limit: int) -> Decision:
        """Give back places whose lease expired and was never released. Answer: freed."""

    async def rebind(self, batch: BatchId, run: RunId, epoch: int, candidate: str, judge: str) -> Decision:
        """Bind a parked run's score to another judge; emits its score message anew."""

    async def parked(self, batch: BatchId) -> list[RunId]:
        """Runs whose score waits for a rebind or a person."""

    async def undelivered(self, batch: BatchId, group: Group) -> int:
        """How many entries the group has pending, plus 1 when the stream has any that it was never given."""

    async def close(self, batch: BatchId, snapshot_id: str, accepted: int) -> Decision:
        """Close the histogram over the snapshot computed from the rows."""

    # --- worker ------------------------------------------------------------------------------------------
    async def claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Mint the one lease of a run. Answer: gen, attempts, head, length, unresolved."""

    async def heartbeat(self, group: Group, consumer: ConsumerId, held: Held) -> list[Decision]:
        """Keep what is held alive; one decision a lease, in the order of `held.leases`."""

    async def append(self, ref: Ref, parent: Digest, seq: int, payloads: Sequence[str]) -> Decision:
        """Add events to the transcript. Answer: head, length."""

    async def seal(self, ref: Ref, parent: Digest, seq: int, payload: str, tree_hash: str, artifact: str) -> Decision:
        """Append the answer, seal, emit the score message, acknowledge the run's entry. Answer: head."""

    async def give_back(self, ref: Ref) -> Decision:
        """Hand a run back at once (`yield`): fence the lease, emit a new entry, acknowledge the old."""

    async def hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End the run as a named hole."""

    # --- scorer ------------------------------------------------------------------------------------------
    async def score_claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Fence the scoring epoch. Answer: epoch, head, tree_hash, artifact, candidate, judge, judge_epoch."""

    async def score(self, ref: Ref, judgement: Judgement) -> Decision:
        """Sign the score. `ref.gen` is the scoring epoch."""

    async def score_give_back(self, ref: Ref) -> Decision:
        """Hand a score back at once."""

    async def score_hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End a sealed run as a named hole."""

    # --- life --------------------------------------------------------------------------------------------
    @property
    def connections(self) -> int:
        """How often the reading connection was opened. When it grows, an answer may have been lost on the way."""

    async def aclose(self) -> None:
        """Close the connections."""
