"""The half of the bus through which tools go: intents, their executors, windows, writes to the workspace.

The holder of a run announces a fan-out (`put_tools`) and joins it (`join`); any worker executes an intent in between
(`tool_claim`, `tool_sent`, `tool_complete`), each under an executor's name of its own that is used once. So a holder
that dies loses no effect, and an executor that falls silent leaves doubt and not a second effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bus.types import BatchId, ConsumerId, Decision, Digest, Gen, RunId
from bus.values import Entry, Ref

__all__ = ["FanOut", "Intent", "IntentRow", "IntentState", "Outcome", "Receipt", "ToolSteps"]


class IntentState(StrEnum):
    """The life of an intent (fence 2)."""

    QUEUED = "queued"
    EXECUTING = "executing"
    AWAITING_ACK = "awaiting_ack"
    COMMITTED = "committed"
    FAILED = "failed"
    COMPENSATING = "compensating"
    COMPENSATED = "compensated"
    STUCK = "stuck"

    @property
    def final(self) -> bool:
        """Nothing moves it any more."""
        return self in (
            IntentState.COMMITTED,
            IntentState.FAILED,
            IntentState.COMPENSATED,
            IntentState.STUCK,
        )


@dataclass(frozen=True, slots=True)
class Intent:
    """One call of one tool. `id` is `<step>.<i>`: the same whatever attempt or generation makes it.

    `args` is canonical JSON text of an object.
    """

    id: str
    tool: str
    args: str


@dataclass(frozen=True, slots=True)
class IntentRow:
    """An intent as it stands. `args` are those that were stored first."""

    id: str
    state: IntentState
    gen: int
    tool: str
    args: str
    observation: str | None
    executor: str = ""


@dataclass(frozen=True, slots=True)
class FanOut:
    """Calls that are made together and joined together: one event of the transcript, one window of fence 12.

    `step` is `<run>~<conversation>.<n>`, also the window's case. `digest` names tools and arguments: the intention of
    the event at `seq`. `window` is the hash that `bus.fences.join.window_of` gives for the case and its intents.
    """

    step: str
    parent: Digest
    seq: int
    digest: Digest
    intents: Sequence[Intent]
    window: str
    window_cost: int = 0


@dataclass(frozen=True, slots=True)
class Receipt:
    """A write to the workspace that the bus has heard of (fence 8): joined with the next event."""

    step: str
    receipt: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a tool said. `echo` is the idempotency key that it sent back; `ok` False only when nothing was done."""

    ok: bool
    observation: str
    echo: str | None = None


class ToolSteps(Protocol):
    """See the module's text."""

    async def write(self, ref: Ref, step: str, path: str, digest: Digest, receipt: str) -> Decision:
        """Say what was put on the holder's disk, under `ref.epoch`. Answer: receipt, log_index.

        `receipt` is drawn by the caller, so that the command can be sent again.
        """

    async def put_tools(self, ref: Ref, fan_out: FanOut) -> Decision:
        """Announce a fan-out; one message an intent. Answer: states, in the order of the intents.

        `duplicate`: it was announced before, by whichever generation: the stored states. `reject args_mismatch`: the
        step asks for something else than was stored.
        """

    async def intents(self, batch: BatchId, run: RunId, ids: Sequence[str]) -> list[IntentRow]:
        """Intents as they stand, those that exist, in the order given."""

    async def effects(self, batch: BatchId, run: RunId) -> list[IntentRow]:
        """Every intent of a run and every undo, by id."""

    async def tool_requeue(self, batch: BatchId, run: RunId, intent: str) -> Decision:
        """Emit an effect's message anew when its group no longer knows the one that the run's row names.

        Answer: entry. `reject ended`: nobody has to be given it any more. `reject still_known`: it will be delivered.
        """

    async def doubts(self, batch: BatchId, run: RunId) -> list[IntentRow]:
        """A run's intents that are sent and not known to have ended, compensating, or stuck; undos among them."""

    async def join(self, ref: Ref, fan_out: FanOut, payload: str, receipts: Sequence[Receipt] = ()) -> Decision:
        """Join a fan-out whose intents have all ended; their observations enter the transcript here and nowhere else.

        Answer: head, length. `in_doubt in_flight`: some have not ended. `reject stuck`: one never will.
        """

    async def turn(self, ref: Ref, abandoned: Digest, payload: str) -> Decision:
        """Give the conversation up and begin the next one, once all that it did outside is undone.

        `payload` is the new chain's first event, and names the abandoned head. Answer: conversation, head, length.
        `in_doubt in_flight`: undos are under way; ask again. `reject stuck`: something cannot be undone.
        """

    async def tool_claim(self, entry: Entry, executor: str, consumer: ConsumerId) -> Decision:
        """Take a tool's message. Answer: intent, gen, tool, args, undo (the key that it undoes, for an undo)."""

    async def free_slots(self, batch: BatchId, slots: Sequence[str]) -> list[str]:
        """Those of the slots that no call has: a look, of which there is no record. Another may be faster."""

    async def tool_sent(self, batch: BatchId, run: RunId, intent: str, gen: Gen, executor: str, slot: str) -> Decision:
        """The call is about to leave: `commit` licenses it, once. Answer: bound_ms.

        `reject slot_busy`, `reject capacity`: wait, and ask again. `reject ended`: the run is over; nothing is sent.
        """

    async def tool_complete(
        self, batch: BatchId, run: RunId, intent: str, gen: Gen, executor: str, outcome: Outcome
    ) -> Decision:
        """Say what the tool said, whatever became of its run. Answer: state."""
