"""The half of the bus through which model calls go: their identity, their chunks, their answers.

A call is announced before its prompt leaves (`open_call`), paid for while its answer arrives (`flush`), and ends in one
of two ways: bound into the transcript (`bind_call`), or dropped (`drop_call`). One script each, so that the live lease,
the prompt's hash, the budget, the endpoint's desk and the transcript are compared together or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bus.types import BatchId, Decision, Digest
from bus.values import Ref

__all__ = ["JUDGE_DESK", "MODEL_DESK", "CallSteps", "Chunk", "ExpiredCall", "ModelCall", "ModelReply"]

MODEL_DESK = "model"
"""The desk of the candidate's endpoint: `model_slots` requests at a time."""

JUDGE_DESK = "judge"
"""The desk of the judge's endpoint: `judge_slots` requests at a time."""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One request to a model, as every script of its life names it.

    `step` is `<run>~<conversation>.<n>` (a judge's: `<run>~j<epoch>.<n>`): the same for each attempt at the same
    question. `request_id`, `attempt` (a random number from 1) and `desk_lease` are drawn anew for each attempt.
    """

    step: str
    request_id: str
    attempt: int
    desk_lease: str
    prompt_hash: Digest
    """SHA-256 of the exact bytes of the request's body, taken before they leave."""
    estimate: int
    """Tokens that it may cost, prompt and answer: what the budget reserves for it."""
    parent: Digest
    seq: int
    """Where in the transcript its answer will stand. A judge's call stands in none: the sealed head, and its length."""
    desk: str = MODEL_DESK


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens that were delivered. `seq` from 1 within the attempt; durable once a later holder could find them."""

    seq: int
    tokens: int
    durable: bool = True


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What came back: `payload` is the transcript's event (JSON text), `digest` the SHA-256 of what it binds.

    `last_seq`: the attempt's last chunk. `chunks`: those that no `flush` carried. `ok` is False for an answer that
    cannot be one (no identity, an empty body, a truncated tool call): a retry of the model's. `estimated`: how many of
    the tokens of `chunks` are a guess.
    """

    payload: str
    digest: Digest
    last_seq: int
    chunks: Sequence[Chunk] = ()
    ok: bool = True
    estimated: int = 0


@dataclass(frozen=True, slots=True)
class ExpiredCall:
    """A request whose holder is gone, and whose place and reservation still stand."""

    desk_lease: str
    step: str
    request_id: str


class CallSteps(Protocol):
    """See the module's text. A chunk that a call carries is billed also when the call is refused.

    Of its tokens those that are a guess count as `estimated` in the batch as far as they are billed now: not again when
    the call is sent again.
    """

    async def open_call(self, ref: Ref, call: ModelCall) -> Decision:
        """Announce a request. `commit` licenses the prompt; answer: desk_gen.

        `duplicate`: this very request was announced; the same answer. `reject step_in_flight`: another request of the
        step is on its way; answer: request, attempt, desk_lease. `reject over_budget`: answer: spent, reserved.
        `reject bound_full`: the desk is full. `in_doubt dangling`: an older generation's call has its place; `resolve`.
        """

    async def has_room(self, ref: Ref, call: ModelCall) -> bool:
        """Whether a call that was refused may be worth announcing again: a look, of which there is no record.

        True also when the budget has no room and nothing is reserved: nobody will make any, and `open_call` says so.
        And when its step has a place: a late copy of what was refused was granted, and only its sender gives that up.
        """

    async def flush(self, ref: Ref, call: ModelCall, chunks: Sequence[Chunk]) -> Decision:
        """Bill chunks while the answer arrives; needs no live lease. Answer: billed, durable, watermark."""

    async def bind_call(self, ref: Ref, call: ModelCall, desk_gen: int, reply: ModelReply) -> Decision:
        """Bind the answer: completion, transcript, ledger and desk together. Answer: head, model_left.

        `replay payload_corrupt`: open again under a new request. `in_doubt missing_chunks`: flush them, and again.
        """

    async def drop_call(
        self,
        ref: Ref,
        call: ModelCall,
        chunks: Sequence[Chunk] = (),
        *,
        cancelled: bool,
        billed: int | None = None,
        estimated: int = 0,
    ) -> Decision:
        """Give a request up; whoever opened it may, with or without a live lease.

        `cancelled`: the connection is closed, so it spends no more; its place is free at once and its attempt settled,
        at `billed` tokens where the endpoint's own figure is known, else at what its chunks say, `estimated` of them
        by a guess. Not cancelled: its place and its reservation stand until `sweep`.
        """

    async def expired_calls(self, batch: BatchId, desk: str) -> list[ExpiredCall]:
        """The requests at a desk whose holders are gone: what `sweep` will settle, and may be told a figure of."""

    async def resolve(self, ref: Ref, parent: Digest, seq: int, payload: str) -> Decision:
        """Put an event `lost` in the place of an older generation's call: its answer will never come."""

    async def open_judge(self, ref: Ref, call: ModelCall) -> Decision:
        """`open_call` under a scorer's lease: the budget and the judge's desk alone."""

    async def bind_judge(self, ref: Ref, call: ModelCall, desk_gen: int, reply: ModelReply) -> Decision:
        """`bind_call` under a scorer's lease: the ledger and the judge's desk alone; `payload` is not kept."""
