"""A judge's calls through the loop of the candidate's: under the scorer's lease, at the judge's desk, in no transcript.

Fences 10 and 11 stand in its path, 4 and 7 do not: the score signs what was said, and a scorer that dies asks again. So
nothing here is answered from before, and nothing is announced in a place that another could want. What 4 counts for
the candidate, answers that are none, is counted here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, NoReturn

import structlog

from bus.port import Bus, Chunk, ModelCall, ModelReply, Ref
from bus.port_calls import JUDGE_DESK
from bus.types import BatchId, Decision, Digest
from workers.conversation import Place
from workers.lease import Lease
from workers.scoring import ScorerError
from workers.verdict import Broken, Over, Verdict

__all__ = ["Hearing", "JudgeError", "JudgeSteps"]

log = structlog.get_logger("evalbus.judge")

_NAMED: Final = ("over_budget",)
"""Ends of the loop that a hole is called by; all others are the judge's own failures."""


class JudgeError(ScorerError):
    """There is no judgement. The run is a hole of this name: never a fail, and never a pass."""

    def __init__(self, why: str, problem: str) -> None:
        """`why`: `judge_error`, `judge_unparsed`, `over_budget`."""
        super().__init__(problem)
        self.why = why


class Hearing:
    """`workers.modelling.party.Party` of one run's judgement."""

    def __init__(self, lease: Lease, ref: Ref, head: Digest, length: int, retries: int) -> None:
        """`head`, `length`: of the sealed transcript. `retries`: answers that may be none before it is the end."""
        self.ref = ref
        self._lease, self._head, self._length = lease, head, length
        self._asked = 0
        self._retries = retries
        self._refusal = ""

    @asynccontextmanager
    async def exchange(self) -> AsyncIterator[None]:
        """Nobody else asks for this run."""
        yield

    async def answered(self, _kind: str, _request: str) -> Mapping[str, Any] | None:
        """It is not known from before."""
        return None

    async def place(self, _request: str) -> Place:
        """The sealed transcript's end; the step is named after the scoring epoch."""
        if self._retries < 0:
            await self.leave(Over("judge_error", self._refusal))
        return Place(f"{self.ref.run}~j{self.ref.gen}.{self._asked + 1}", self._head, self._length)

    def announced(self, request: str) -> None:
        """It takes no place."""

    def committed(self, payload: str) -> None:
        """The next question is another step."""
        self._asked += 1

    def refused(self, payload: str) -> None:
        """An answer was none, as this event tells."""
        self._retries -= 1
        self._refusal = str(json.loads(payload).get("text"))

    async def leave(self, verdict: Verdict) -> NoReturn:
        """The judgement ends here: JudgeError, or what is broken. No code of the suite's could swallow it."""
        if isinstance(verdict, Broken):
            raise verdict.error
        assert isinstance(verdict, Over), "only a conversation starts over"
        raise JudgeError(verdict.why if verdict.why in _NAMED else "judge_error", verdict.detail)

    async def lost(self, decision: Decision) -> NoReturn:
        """Another scorer has the run, or nobody should."""
        log.warning("step.refused", run=self.ref.run, epoch=self.ref.gen, why=str(decision))
        self._lease.let_go()
        await asyncio.Event().wait()  # until the cancellation arrives
        raise AssertionError("nobody sets it")

    async def lose(self) -> None:
        """No other generation's call can be in the way."""
        raise AssertionError("a judge's call has no place in a transcript")

    async def diverge(self, why: str) -> None:
        """Nothing can be given up."""
        raise AssertionError(f"a judge's call has no conversation to turn: {why}")


class JudgeSteps:
    """`workers.modelling.party.CallBus` of one judgement."""

    def __init__(self, bus: Bus, hearing: Hearing) -> None:
        """`hearing` is told of answers that are none."""
        self._bus, self._hearing = bus, hearing

    async def open_call(self, ref: Ref, call: ModelCall) -> Decision:
        """Announce a request at the judge's desk."""
        return await self._bus.open_judge(ref, _at_its_desk(call))

    async def has_room(self, ref: Ref, call: ModelCall) -> bool:
        """Whether it may be worth asking for a place at the judge's desk."""
        return await self._bus.has_room(ref, _at_its_desk(call))

    async def flush(self, ref: Ref, call: ModelCall, chunks: Sequence[Chunk]) -> Decision:
        """Bill chunks while the answer arrives."""
        return await self._bus.flush(ref, _at_its_desk(call), chunks)

    async def bind_call(self, ref: Ref, call: ModelCall, desk_gen: int, reply: ModelReply) -> Decision:
        """Account for the answer."""
        decision = await self._bus.bind_judge(ref, _at_its_desk(call), desk_gen, reply)
        if decision.reason == "payload_corrupt":
            self._hearing.refused(reply.payload)
        return decision

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
        return await self._bus.drop_call(
            ref, _at_its_desk(call), chunks, cancelled=cancelled, billed=billed, estimated=estimated
        )

    async def put_blob(self, batch: BatchId, data: bytes) -> Digest:
        """Store bytes under their own digest."""
        return await self._bus.put_blob(batch, data)

    async def get_blob(self, batch: BatchId, digest: Digest) -> bytes:
        """Fetch and rehash."""
        return await self._bus.get_blob(batch, digest)


def _at_its_desk(call: ModelCall) -> ModelCall:
    return replace(call, desk=JUDGE_DESK)
