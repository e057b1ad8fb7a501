"""One attempt at a model call, as the fences want it: announced, paid for by the chunk, bound or given up.

    a place in the conversation → open_call → licence of the fleet's rates → the stream, its chunks flushed as they
    come → bind_call

| what comes instead                                | what is done                                                  |
|---------------------------------------------------|---------------------------------------------------------------|
| open_call: bound_full                             | wait, and ask again under a new request                       |
| over_budget, while others hold reservations       | likewise                                                      |
| over_budget, nothing reserved; retries_exhausted  | the run ends as that hole                                     |
| step_in_flight: a request of ours; of nobody's    | wait for it; drop it, and open again                          |
| dangling                                          | an event `lost` in the place of the older generation's call   |
| an answer that is none                            | bound as such: one retry of the run's less, and another       |
|                                                   | attempt                                                       |
| cut, silent, 429, 4xx, 5xx                        | connection closed, dropped with what was seen; what then is   |
|                                                   | `workers.modelling.calls`' to say                             |
| refused for a lease                               | dropped; the run is let go                                    |
| the solver gives the call up, the worker stops    | connection closed, dropped with what was seen                 |

A request is on the books from before it leaves until it is bound or dropped, whatever interrupts it in between.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

import structlog

from bus.envelopes import MAX_PAYLOAD
from bus.errors import EvalbusError
from bus.port import Chunk, ModelCall, ModelReply, Runtime
from bus.types import Decision, Digest, Verb
from workers.conversation import GIVEN_UP_BEFORE
from workers.endpoints import Endpoint, EndpointError, Prepared, RateLimitedError, RefusedAnswerError, Reply, Stream
from workers.modelling.metering import Meter
from workers.modelling.model import Completion, reply_event
from workers.modelling.party import CallBus, Party
from workers.modelling.plane import ModelPlane
from workers.prefix import event_json
from workers.processes.machine import insisted
from workers.redaction import redacted
from workers.solver_time import SolverTime
from workers.verdict import Over

__all__ = ["Attempt", "Question", "Site", "TryAgain"]

log = structlog.get_logger("evalbus.model")

_LONG: Final = MAX_PAYLOAD // 2
"""Bytes of an event; a longer reply travels beside the transcript, by its digest."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0  # seconds between two questions for a place, or for room in the budget
_INSIST: Final = 10.0
"""Seconds for which a reply that was paid for is tried to be stored."""
_BINDS = 3  # times that an answer is presented whose chunks did not all arrive


class TryAgain(Exception):
    """This attempt came to nothing that counts; the next one is another request."""


@dataclass(slots=True)
class Site:
    """Where a run's calls are made from."""

    bus: CallBus
    runtime: Runtime
    conversation: Party
    plane: ModelPlane
    time: SolverTime
    """The solver's, which stands while a call waits for room."""
    dropping: set[asyncio.Task[None]] = field(default_factory=set)
    """Requests that are being taken off the books, though whoever asked is gone."""
    refusal: str = ""
    """Why the last answer was none."""

    async def pause(self, seconds: float) -> None:
        """Wait, at no cost to the solver."""
        with self.time.stopped():
            await self.runtime.sleep(seconds * (0.75 + 0.5 * self.runtime.jitter()))


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, as it will be sent."""

    endpoint: Endpoint
    prepared: Prepared
    estimate: int
    """Tokens to set aside for it."""
    peace: float
    """Seconds for which the endpoint is left in peace when it asks for that and does not say how long."""


class Attempt:
    """See the module's text."""

    def __init__(self, site: Site, question: Question) -> None:
        """Nothing is announced yet."""
        self._site, self._question = site, question
        self._bus, self._conversation, self._plane = site.bus, site.conversation, site.plane
        self._meter = Meter(site.runtime.now())
        self._stream: Stream | None = None
        self._sent = self._closed = False
        self._flushing: asyncio.Task[Decision] | None = None

    async def make(self) -> Completion:
        """The answer, bound. Raises TryAgain or EndpointError when the endpoint failed: the request is dropped then."""
        pause = _FIRST_PAUSE
        while True:
            call = await self._draw()
            self._plane.asking.add(call.request_id)
            try:
                decision = await self._bus.open_call(self._conversation.ref, call)
                if decision.applied:
                    self._conversation.announced(call.prompt_hash)
                    return await self._answered(call, int(decision.answer["desk_gen"]))
            except (EvalbusError, TryAgain):
                raise
            except BaseException:  # a cancellation, or what nobody foresaw
                # Unknown is not unmade: what may have been announced is taken back, and cannot be licensed any more.
                self._conversation.announced(call.prompt_hash)
                if not self._closed:
                    await self._drop_whatever_happens(call)
                raise
            finally:
                self._plane.asking.discard(call.request_id)
            await self._not_opened(decision, call, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _draw(self) -> ModelCall:
        """A request with names of its own."""
        prepared, runtime = self._question.prepared, self._site.runtime
        place = await self._conversation.place(prepared.prompt_hash)
        return ModelCall(
            step=place.step,
            request_id=runtime.token(),
            attempt=int(runtime.token()[:13], 16) + 1,
            desk_lease=runtime.token(),
            prompt_hash=prepared.prompt_hash,
            estimate=self._question.estimate,
            parent=place.parent,
            seq=place.seq,
        )

    async def _not_opened(self, decision: Decision, call: ModelCall, pause: float) -> None:
        """Return when it is worth another request."""
        conversation, said = self._conversation, decision.answer
        match decision.reason:
            case "bound_full":
                await self._room(call)
            case "over_budget" if said.get("reserved"):
                await self._room(call)
            case "over_budget":
                spent = f"{said.get('spent', 0):,} tokens are spent"
                await conversation.leave(Over("over_budget", f"{spent}, and a call may take {call.estimate:,}"))
            case "retries_exhausted":
                why = self._site.refusal or "no answer that was one"
                await conversation.leave(Over("retries_exhausted", why))
            case "dangling":
                await conversation.lose()
            case "step_in_flight" if said.get("request") in self._plane.asking:
                await self._site.pause(pause)
            case "step_in_flight" if "desk_lease" in said:
                await self._drop_stray(call, str(said["request"]), int(said["attempt"]), str(said["desk_lease"]))
            case "turning":
                await conversation.diverge(GIVEN_UP_BEFORE)
                raise TryAgain
            case _:
                await conversation.lost(decision)

    async def _room(self, call: ModelCall) -> None:
        """Wait until there may be a place, and tokens. Looking is free; asking in vain is a refusal in the history."""
        pause = _FIRST_PAUSE
        # Without a break, however often it looks: who has only waited for a lease time makes way for a suspect.
        with self._site.time.stopped():
            while True:
                await self._site.pause(pause)
                if await self._bus.has_room(self._conversation.ref, call):
                    return
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _drop_stray(self, call: ModelCall, request: str, attempt: int, desk_lease: str) -> None:
        """A request of nobody's: a late copy was granted after who sent it had given it up. Its prompt never left."""
        stray = ModelCall(
            call.step, request, attempt, desk_lease, call.prompt_hash, call.estimate, call.parent, call.seq
        )
        decision = await self._bus.drop_call(self._conversation.ref, stray, cancelled=True)
        log.warning("call.stray", step=call.step, request=request, decision=str(decision))

    # --- the stream --------------------------------------------------------------------------------------

    async def _answered(self, call: ModelCall, desk_gen: int) -> Completion:
        try:
            await self._licensed()
            reply = await self._read(call)
        except RefusedAnswerError as error:
            await self._bind_refusal(call, desk_gen, error)
            raise TryAgain from error
        except EndpointError as error:
            if not error.free:
                self._break_off()
            # Before its place is free for somebody else's request.
            if error.retry_after is not None or isinstance(error, RateLimitedError):
                wanted = self._question.peace if error.retry_after is None else error.retry_after
                await self._plane.limits.backoff(wanted)
            await self._flushed()
            await self._drop(call, free=error.free)
            raise
        self._meter.finish(reply.usage, self._site.runtime.now())
        await self._flushed()
        return await self._bind(call, desk_gen, reply)

    async def _licensed(self) -> None:
        """Wait until the fleet's rates let a request leave."""
        while wait := await self._plane.limits.take(self._question.estimate):
            with self._site.time.stopped():
                await self._site.runtime.sleep(wait)

    async def _read(self, call: ModelCall) -> Reply:
        self._sent = True
        runtime, meter = self._site.runtime, self._meter
        meter.began = runtime.now()
        async with self._question.endpoint.stream(self._question.prepared, call.request_id) as stream:
            self._stream = stream
            async for piece in stream:
                meter.take(piece)
                if meter.is_due(runtime.now()) and (self._flushing is None or self._flushing.done()):
                    await self._flushed()
                    meter.cut(runtime.now())
                    chunks = meter.unflushed
                    self._flushing = asyncio.ensure_future(self._flush(call, chunks))
                    meter.flushed += len(chunks)
        return stream.reply

    async def _flush(self, call: ModelCall, chunks: Sequence[Chunk]) -> Decision:
        return await self._bus.flush(self._conversation.ref, call, chunks)

    async def _flushed(self) -> None:
        """Wait for the flush under way; the stream never does. Raises what it raised."""
        if self._flushing is not None:
            flushing, self._flushing = self._flushing, None
            await flushing

    def _break_off(self) -> None:
        """The stream is over before its end."""
        if self._sent:
            usage = None if self._stream is None else self._stream.usage
            self._meter.break_off(usage, self._question.prepared.input_estimate, self._site.runtime.now())

    # --- how it ends -------------------------------------------------------------------------------------

    async def _bind(self, call: ModelCall, desk_gen: int, reply: Reply) -> Completion:
        whole = event_json(reply_event(call.step, call.prompt_hash, reply))
        payload = whole if len(whole.encode("utf-8", "surrogatepass")) <= _LONG else await self._put_aside(whole)
        digest = Digest(hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest())
        meter, ref = self._meter, self._conversation.ref
        answer = ModelReply(payload, digest, max(meter.last_seq, 1), meter.durable(), estimated=meter.guessed)
        for _ in range(_BINDS):
            decision = await self._bus.bind_call(ref, call, desk_gen, answer)
            if decision.applied:
                self._conversation.committed(payload)
                self._learn(reply)
                return Completion.of_event(json.loads(whole))
            if decision.reason != "missing_chunks":
                break
            await self._bus.flush(ref, call, answer.chunks)
        return await self._not_bound(decision, call)

    async def _put_aside(self, event: str) -> str:
        """The event of a long reply, which names it instead of telling it."""
        told = json.loads(event)
        data = json.dumps(told.pop("reply"), ensure_ascii=False).encode("utf-8", "surrogatepass")
        batch = self._conversation.ref.batch
        digest = await insisted(self._site.runtime, _INSIST, lambda: self._bus.put_blob(batch, data))
        return event_json({**told, "artifact": digest})

    def _learn(self, reply: Reply) -> None:
        told = None if reply.usage.estimated else reply.usage.input
        self._plane.expectation.learn(self._meter.total, told, len(self._question.prepared.body))

    async def _bind_refusal(self, call: ModelCall, desk_gen: int, error: RefusedAnswerError) -> None:
        """An answer that is none, presented as such. Returns when another may be asked for."""
        known = self._stream is not None and self._stream.usage is not None
        figure = None if known else await self._plane.figure_of(call.request_id)
        if figure is None:
            self._break_off()
        else:
            self._meter.settle(figure, self._site.runtime.now())
        await self._flushed()
        self._site.refusal = redacted(str(error))
        payload = event_json({"kind": "refused", "step": call.step, "reason": error.reason, "text": str(error)})
        digest = Digest(hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest())
        meter = self._meter
        presented = ModelReply(payload, digest, meter.last_seq, meter.unflushed, ok=False, estimated=meter.guessed)
        decision = await self._bus.bind_call(self._conversation.ref, call, desk_gen, presented)
        if decision.verb is not Verb.REPLAY:
            await self._not_bound(decision, call)
        self._closed = True
        log.info("answer.refused", step=call.step, why=error.reason, left=decision.answer.get("model_left"))

    async def _not_bound(self, decision: Decision, call: ModelCall) -> NoReturn:
        await self._drop(call, free=True)
        match decision.reason:
            case "superseded" | "prompt_hash" | "unknown_request":
                raise TryAgain
            case "retries_exhausted":
                await self._conversation.leave(Over("retries_exhausted", self._site.refusal or "it has no retry left"))
            case "turning":
                await self._conversation.diverge(GIVEN_UP_BEFORE)
                raise TryAgain
            case _:
                await self._conversation.lost(decision)

    async def _drop(self, call: ModelCall, *, free: bool) -> None:
        """Take the request off the books; its connection is closed. `free`: there is nothing to be asked for."""
        figure = None if free else await self._plane.figure_of(call.request_id)
        decision = await self._bus.drop_call(
            self._conversation.ref,
            call,
            self._meter.unflushed,
            cancelled=True,
            billed=figure,
            estimated=self._meter.guessed if figure is None else 0,
        )
        self._closed = True
        log.info("call.dropped", step=call.step, tokens=self._meter.total, figure=figure, decision=str(decision))

    async def _drop_whatever_happens(self, call: ModelCall) -> None:
        """The same in a task of its own: who is cancelled must not leave a reservation behind."""

        async def drop() -> None:
            self._break_off()
            await self._flushed()
            await self._drop(call, free=not self._sent)

        task = asyncio.ensure_future(drop())
        self._site.dropping.add(task)
        task.add_done_callback(self._site.dropping.discard)
        await asyncio.shield(task)
