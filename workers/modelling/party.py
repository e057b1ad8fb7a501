"""Who makes a model call, as the call's loop sees it: a run's conversation, or a judge's hearing.

Both ask an endpoint under a lease, a budget and a desk, and what interrupts them is the same. What differs is where the
answer is put down, and who is told that there will be none; that is all the loop asks of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn, Protocol

from bus.port import Chunk, ModelCall, ModelReply, Ref
from bus.types import BatchId, Decision, Digest
from workers.conversation import Place
from workers.verdict import Verdict

__all__ = ["CallBus", "Party"]


class CallBus(Protocol):
    """The steps of a call's life: those of `bus.port_calls`, whichever desk they are at."""

    async def open_call(self, ref: Ref, call: ModelCall) -> Decision:
        """Announce a request."""

    async def has_room(self, ref: Ref, call: ModelCall) -> bool:
        """Whether it may be worth asking for a place again."""

    async def flush(self, ref: Ref, call: ModelCall, chunks: Sequence[Chunk]) -> Decision:
        """Bill chunks while the answer arrives."""

    async def bind_call(self, ref: Ref, call: ModelCall, desk_gen: int, reply: ModelReply) -> Decision:
        """Bind the answer, or present what is none."""

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
        """Give a request up."""

    async def put_blob(self, batch: BatchId, data: bytes) -> Digest:
        """Store what is too long for an event."""

    async def get_blob(self, batch: BatchId, digest: Digest) -> bytes:
        """Fetch that."""


class Party(Protocol):
    """Whose call it is."""

    @property
    def ref(self) -> Ref:
        """The live token."""

    def exchange(self) -> AbstractAsyncContextManager[None]:
        """One request's turn."""

    async def answered(self, kind: str, request: str) -> Mapping[str, Any] | None:
        """The event that answers this request already; None when it is to be made."""

    async def place(self, request: str) -> Place:
        """Where the answer will stand, and the name of its step."""

    def announced(self, request: str) -> None:
        """The place may be taken from now on."""

    def committed(self, payload: str) -> None:
        """The answer is bound."""

    async def leave(self, verdict: Verdict) -> NoReturn:
        """There will be no answer, for this reason."""

    async def lost(self, decision: Decision) -> NoReturn:
        """Refused for a lease: let go of everything."""

    async def lose(self) -> None:
        """An older generation's call has the place, and will not be answered."""

    async def diverge(self, why: str) -> None:
        """The conversation is given up, for this reason."""
