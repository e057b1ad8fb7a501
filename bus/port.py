"""The interface through which every role reaches the bus.

Two buses stand behind it: the server with its scripts (`bus.redis_bus`), and the reference models composed in memory
(`bus.memory`). The roles know neither: they get a `Bus` and a `Runtime` (clock, sleep, randomness) from outside, so the
very same code can be run on a seeded scheduler in virtual time.

Every method that changes state is one script: it is applied whole or not at all, recorded in the batch's history, and
may be sent twice. A method raises `ServerUnreachable` only after its own patience has run out; until then it sends the
same command again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from bus.port_calls import CallSteps, Chunk, ModelCall, ModelReply
from bus.port_tools import FanOut, Intent, IntentRow, IntentState, Outcome, Receipt, ToolSteps
from bus.types import BatchId, ConsumerId, Decision, Digest, EntryId, LeaseId, Plane, RunId
from bus.values import (
    LIMITS,
    BatchInfo,
    BatchSpec,
    BatchStatus,
    Counters,
    Entry,
    Event,
    Group,
    Held,
    Judgement,
    NextRuns,
    Ref,
    RunEnd,
    RunRow,
    RunState,
)

__all__ = [
    "LIMITS",
    "BatchInfo",
    "BatchSpec",
    "BatchStatus",
    "Bus",
    "Chunk",
    "Counters",
    "Entry",
    "Event",
    "FanOut",
    "Group",
    "Held",
    "Intent",
    "IntentRow",
    "IntentState",
    "Judgement",
    "ModelCall",
    "ModelReply",
    "NextRuns",
    "Outcome",
    "Receipt",
    "Ref",
    "RunEnd",
    "RunRow",
    "RunState",
    "Runtime",
]


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


class Bus(CallSteps, ToolSteps, Protocol):
    """See the module's text. Decisions carry their answers in `decision.answer`."""

    @property
    def plane(self) -> Plane:
        """The world that it reads and writes."""

    # --- reading -----------------------------------------------------------------------------------------
    async def batches(self) -> list[BatchId]:
        """The batches that have not ended."""

    async def info(self, batch: BatchId) -> BatchInfo | None:
        """What a batch declared, or None when there is none of that name."""

    async def counters(self, batch: BatchId) -> Counters:
        """Progress: one read of the batch's hash."""

    async def rows(self, batch: BatchId, runs: Sequence[RunId]) -> list[RunRow]:
        """The rows of the given runs that exist, in the order given."""

    async def ends(self, batch: BatchId, runs: Sequence[RunId]) -> list[RunEnd]:
        """Of the rows of the given runs that exist, in the order given, what a snapshot is made of."""

    async def run_ids(self, batch: BatchId) -> list[RunId]:
        """Every run that was admitted or abandoned, in that order."""

    async def transcript(self, batch: BatchId, run: RunId, head: Digest | None = None) -> list[Event]:
        """The committed events of a run's present conversation, in order.

        `head`: where that is known to end, as in a run that was sealed. It saves a question and proves nothing: whoever
        relies on it computes the chain.
        """

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

    async def admit(self, batch: BatchId, next_runs: NextRuns) -> Decision:
        """Admit the next runs while there is room. Answer: admitted, cursor, why_stopped."""

    async def adopt(self, batch: BatchId, source: BatchId, next_runs: NextRuns) -> Decision:
        """As `admit`, for a batch that scores a closed one anew: its runs come as they were sealed there.

        What was never sealed there is the same hole here. The source is read and never written to.
        """

    async def abandon(self, batch: BatchId, cursor: int, runs: Sequence[RunId], why: str) -> Decision:
        """Name the next runs from `cursor` on holes: they were never admitted."""

    async def requeue(self, batch: BatchId, group: Group, run: RunId, entry: EntryId) -> Decision:
        """Emit a run's message anew when its group no longer knows the one that its row names."""

    async def sweep(
        self,
        batch: BatchId,
        limit: int,
        desk: str = "runs",
        figures: Mapping[str, int] | None = None,
        asked: Collection[str] | None = None,
    ) -> Decision:
        """Give back a desk's places whose lease expired and was never released. Answer: freed.

        `asked`: the leases of which the endpoint was asked; one that expired since waits for the next sweep, or it
        would be charged as if nobody could tell. None: there is nobody to ask.

        A model call that is swept is settled too: at the endpoint's last word where `figures` has it for its lease, and
        then at once; else after the reclaim time, at the larger of what was billed and what was reserved, since nobody
        knows what it went on to spend.
        """

    async def rebind(self, batch: BatchId, run: RunId, epoch: int, candidate: str, judge: str) -> Decision:
        """Bind a parked run's score to another judge; emits its score message anew."""

    async def parked(self, batch: BatchId) -> list[RunId]:
        """Runs whose score waits for a rebind or a person."""

    async def undelivered(self, batch: BatchId, group: Group) -> int:
        """How many entries the group has pending, plus 1 when the stream has any that it was never given."""

    async def close(self, batch: BatchId, snapshot_id: str, accepted: int) -> Decision:
        """Close the histogram over the snapshot computed from the rows. To be confirmed before it is told of."""

    async def confirm(self, batch: BatchId) -> None:
        """Wait until all that was applied for a batch would survive what this bus's durability is about."""

    # --- worker ------------------------------------------------------------------------------------------
    async def claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Mint the one lease of a run.

        Answer: gen, attempts, conversation, turning (a `turn` was begun and must be ended), head, length, unresolved,
        windows (fan-outs that were announced and not joined), epoch (of the workspace; 0 where there is none), wrote
        (the conversation wrote to a workspace that is gone).
        """

    async def heartbeat(self, group: Group, consumer: ConsumerId, held: Held) -> list[Decision]:
        """Keep what is held alive; one decision a lease, in the order of `held.leases`."""

    async def append(
        self, ref: Ref, parent: Digest, seq: int, payloads: Sequence[str], receipts: Sequence[Receipt] = ()
    ) -> Decision:
        """Add events to the transcript, and join the writes that they tell of. Answer: head, length."""

    async def seal(self, ref: Ref, parent: Digest, seq: int, payload: str, tree_hash: str, artifact: str) -> Decision:
        """Append the answer, seal, emit the score message, acknowledge the run's entry. Answer: head."""

    async def give_back(self, ref: Ref, machine: str = "", *, seen: bool = False) -> Decision:
        """Hand a run back at once (`yield`): fence the lease, emit a new entry, acknowledge the old.

        `machine`: which could not do it, one word; empty: its holder has to stop. `seen`: that machine finds by itself
        what is wrong with it. `reject its_own_doing` when the run did so to others, too: the holder keeps it, and is to
        end it.
        """

    async def hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End the run as a named hole."""

    # --- scorer ------------------------------------------------------------------------------------------
    async def score_claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Fence the scoring epoch. Answer: epoch, head, tree_hash, artifact, candidate, judge, judge_epoch."""

    async def score(self, ref: Ref, judgement: Judgement) -> Decision:
        """Sign the score. `ref.gen` is the scoring epoch."""

    async def score_give_back(self, ref: Ref, machine: str = "", *, seen: bool = False) -> Decision:
        """Hand a score back at once. `machine`, `seen`: as in `give_back`."""

    async def score_hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End a sealed run as a named hole."""

    # --- life --------------------------------------------------------------------------------------------
    @property
    def connections(self) -> int:
        """How often the reading connection was opened. When it grows, an answer may have been lost on the way."""

    async def aclose(self) -> None:
        """Close the connections."""
