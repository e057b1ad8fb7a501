"""A run's conversation as its live holder leads it: answered from what was written before, extended where that ends.

The solver runs again from its start after a preemption. What it asks is answered from the committed prefix, in order,
as long as it asks the same: then no call is made, and nothing is paid for, twice. Remarks are not requests: one that
the prefix does not hold is written where the prefix ends.

A request that differs ends the conversation, and so does a beginning that cannot be gone back to (files that were
written, and are gone). It is given up whole (`turn`): what it did outside is undone first, and the next conversation
begins with its name. A solver that has been answered from what was given up starts over.

One request at a time; `exchange` is its turn, and only the solver's present attempt gets one (`workers.attendance`).
What ends the attempt is laid down in `verdict`, and what comes first counts: the solver's answer, or what ends the run
or starts its solver over from outside. The call that found one of those never returns, so no `except` of the solver's
can swallow it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

import structlog

from bus.chain import next_head
from bus.errors import EvalbusError, InputError, MachineError
from bus.port import Bus, Event, Receipt, Ref, Runtime
from bus.types import Decision, Digest, Verb
from workers.attendance import Attendance
from workers.lease import Lease
from workers.prefix import Prefix, event_json
from workers.processes.machine import fault_of
from workers.solver_time import SolverTime
from workers.verdict import Again, Broken, Over, Verdict

__all__ = ["GIVEN_UP_BEFORE", "Conversation", "Place"]

log = structlog.get_logger("evalbus.worker")

_AT_ONCE = 50  # events appended in one step
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds between two looks at undos that are under way

GIVEN_UP_BEFORE: Final = "it was being given up already"
"""Why a conversation turns whose turn was begun and not finished."""

_inside: ContextVar[str] = ContextVar("evalbus_exchange", default="")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the conversation the next answer will stand, and the name of its step."""

    step: str
    parent: Digest
    seq: int


@dataclass(frozen=True, slots=True)
class _Pending:
    """An event that is not written yet, and the receipt of the write that it tells of."""

    payload: str
    receipt: Receipt | None = None


class Conversation:
    """See the module's text."""

    def __init__(
        self, bus: Bus, runtime: Runtime, lease: Lease, ref: Ref, prefix: Sequence[Event], time: SolverTime
    ) -> None:
        """`prefix`: the events that earlier generations committed. `open` makes one that is ready."""
        self._bus, self._runtime, self._lease, self._time = bus, runtime, lease, time
        self.ref = ref
        self.verdict: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        self.attendance = Attendance()
        self._lock = asyncio.Lock()
        self._pending: list[_Pending] = []
        self._begin([event.payload for event in prefix])

    def _begin(self, payloads: Sequence[str]) -> None:
        self._prefix = Prefix(payloads)
        self._fan_out = False  # a fan-out was announced and not joined: only the same one can stand next
        self._announced: str | None = None  # a call has the next place by its prompt's hash, and is not answered
        self._writes = self._prefix.writes

    @property
    def head(self) -> Digest:
        """Of the chain of events that are written."""
        return self._prefix.head

    @property
    def length(self) -> int:
        """How many events are written."""
        return self._prefix.length

    @classmethod
    async def open(
        cls,
        bus: Bus,
        runtime: Runtime,
        lease: Lease,
        granted: Mapping[str, Any],
        time: SolverTime,
        resume: str | None = None,
    ) -> Conversation:
        """Go on where `claim` says that the run stands; see `Suite.resume`. There may be a verdict already."""
        ref = lease.ref
        assert ref is not None, "it was claimed"
        prefix = await bus.transcript(ref.batch, ref.run) if granted["length"] else []
        one = cls(bus, runtime, lease, ref, prefix, time)
        one._fan_out = bool(granted.get("windows"))
        gone = granted.get("wrote") and resume != "prefix"
        why = ""
        if gone:
            why = "the files that it wrote are lost"
        elif resume == "fresh" and (prefix or granted.get("unresolved")):
            why = 'its suite has it start over (resume = "fresh")'
        elif granted.get("turning"):
            why = GIVEN_UP_BEFORE
        if why:
            await one._turn_before_the_solver(why)
        elif granted.get("unresolved") and not one._fan_out:
            await one.lose()
            one._prefix.start_over()  # it was written before the solver has asked for anything that stands before it
        return one

    # --- verdicts ----------------------------------------------------------------------------------------

    async def leave(self, verdict: Verdict) -> NoReturn:
        """The solver goes no further: it is cancelled where it waits."""
        if self.attendance.is_present():  # what an attempt before left behind decides nothing about the present one
            self.attendance.end()
            if not self.verdict.done():
                self.verdict.set_result(verdict)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def lost(self, decision: Decision) -> NoReturn:
        """Refused for a lease, or for what nobody foresaw: no more is said for it. Another attempt may do better."""
        log.warning("step.refused", run=self.ref.run, gen=self.ref.gen, why=str(decision))
        self.attendance.end()
        self._lease.let_go()
        await asyncio.Event().wait()  # until the cancellation arrives
        raise AssertionError("nobody sets it")

    def start_over(self) -> None:
        """The solver begins again at its start."""
        self.verdict = asyncio.get_running_loop().create_future()
        self._prefix.start_over()

    # --- what the prefix says ----------------------------------------------------------------------------

    @property
    def _is_live(self) -> bool:
        """Nothing stands between here and the next event."""
        return self._prefix.is_used_up and not self._fan_out and self._announced is None

    async def answered(self, kind: str, request: str) -> Mapping[str, Any] | None:
        """The event that answers this request already; None when it is to be made. In an `exchange`, or for a write.

        A request that differs from the prefix's turns the conversation.
        """
        event = self._prefix.answer(kind, request)
        if event is not None:
            return event
        if self._prefix.is_used_up and not (self._fan_out and kind != "tools"):
            self._prefix.pass_by()
            return None
        await self.diverge(f"it went another way: its next {kind} request is not the one that was recorded")
        return None

    async def diverge(self, why: str) -> None:
        """Turn, and start the solver over if it was told anything of what is given up."""
        told = self._prefix.repeated
        await self.turn(why)
        if told:
            await self.leave(Again())

    async def turn(self, why: str) -> None:
        """Give the conversation up, once all that it did outside is undone; the next one is live when this returns.

        `why`: for the log, and for the hole when that cannot be undone.
        """
        log.info("conversation.given_up", run=self.ref.run, at=self._prefix.at, why=why)
        payload = event_json({"kind": "turned", "abandoned": self.head})
        pause = _FIRST_PAUSE
        while True:
            decision = await self._bus.turn(self.ref, self.head, payload)
            if decision.applied:
                break
            if decision.verb is not Verb.IN_DOUBT:
                if decision.reason == "stuck":
                    await self.leave(Over("stuck", f"what it did outside cannot be undone, and {why}"))
                await self.lost(decision)
            async with self.aside():
                await self._runtime.sleep(pause * (0.75 + 0.5 * self._runtime.jitter()))
            pause = min(2 * pause, _LONGEST_PAUSE)
        self.ref = replace(self.ref, conversation=int(decision.answer["conversation"]))
        self._lease.ref = self.ref
        self._pending = [one for one in self._pending if one.receipt is None]  # remarks stay, writes are given up
        self._begin([payload])
        log.info("conversation.turned", run=self.ref.run, conversation=self.ref.conversation)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Around what waits for tool calls or their undos, which this process may have to make: its time stands."""
        place = self._lease.place
        with self._time.stopped():
            async with place.aside() if place is not None else nullcontext():
                yield

    async def _turn_before_the_solver(self, why: str) -> None:
        turning = asyncio.ensure_future(self.turn(why))
        first: set[asyncio.Future[Any]] = {turning, self.verdict}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if turning.done():
                turning.result()
        finally:
            turning.cancel()

    # --- extending it ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def exchange(self) -> AsyncIterator[None]:
        """One request's turn, from its question to its answer; remarks made meanwhile are written at its end."""
        if _inside.get() == self.ref.run:
            raise RuntimeError(
                "a tool cannot ask the model or call tools: only one request of a run is under way at a time"
            )
        await self.attendance.check()
        with self.attendance.asking():
            async with self._lock, self._unbroken():
                if self.attendance.is_present():
                    token = _inside.set(self.ref.run)
                    try:
                        yield
                    finally:
                        _inside.reset(token)
                    await self._flush()
                    return
            await self.attendance.check()  # it ended while this waited

    @asynccontextmanager
    async def _unbroken(self) -> AsyncIterator[None]:
        """A server that is gone, or a broken invariant, is not told to the solver, which would make a hole of it."""
        try:
            yield
        except MachineError as error:
            await self.leave(Broken(error))
        except (OSError, ExceptionGroup) as error:  # several calls of tools fail as a group
            if (fault := fault_of(error)) is None:
                raise
            await self.leave(Broken(fault))
        except InputError:  # of the solver's own making
            raise
        except EvalbusError as error:
            await self.leave(Broken(error))

    async def place(self, request: str) -> Place:
        """Where the answer to this request will stand. What happened before it is written first. In an `exchange`."""
        if self._announced not in (None, request):
            await self.lose()
        await self._flush()
        return Place(self.step(), self.head, self.length + 1)

    def step(self) -> str:
        """The name of the request that comes next: the same for each attempt at it."""
        return f"{self.ref.run}~{self.ref.conversation}.{self._prefix.requests + 1}"

    def announced(self, request: str) -> None:
        """A model call may have the next place: until `committed`, nothing but its answer can stand there."""
        self._announced = request

    def committed(self, payload: str) -> None:
        """Another step (`bind_call`, `join`) has written this event at the place."""
        self._announced, self._fan_out = None, False
        self._prefix.add([payload])

    def rejoined(self) -> None:
        """The fan-out that was announced at this place is the one that is asked for now."""
        self._fan_out = False

    def receipts(self) -> list[Receipt]:
        """Of the writes that the request under way has made: its own event joins them. In an `exchange`."""
        made = [one.receipt for one in self._pending if one.receipt is not None]
        self._pending = [one for one in self._pending if one.receipt is None]
        return made

    async def append(self, payloads: Sequence[str], receipts: Sequence[Receipt] = ()) -> None:
        """Write events. In an `exchange`."""
        decision = await self._bus.append(self.ref, self.head, self.length + 1, payloads, receipts)
        if not decision.applied:
            await self.lost(decision)
        self._prefix.add(payloads)

    async def _flush(self) -> None:
        """Write what is pending, where nothing stands before it."""
        while self._pending and self._is_live:
            now = self._pending[:_AT_ONCE]
            await self.append([one.payload for one in now], [one.receipt for one in now if one.receipt is not None])
            del self._pending[: len(now)]

    async def lose(self) -> None:
        """Put an event `lost` where a call was announced that will not be answered."""
        payload = event_json({"kind": "lost", "step": self.step()})
        decision = await self._bus.resolve(self.ref, self.head, self.length + 1, payload)
        if not decision.applied and decision.reason != "intent_mismatch":  # that one: it never was announced
            await self.lost(decision)
        self._announced = None
        if decision.answer.get("head") == next_head(self.head, payload):
            self._prefix.add([payload])

    # --- remarks and writes ------------------------------------------------------------------------------

    async def note(self, text: str) -> None:
        """Write a remark, or find it in the prefix."""
        await self.attendance.check()
        payload = event_json({"kind": "note", "text": text})
        if self._prefix.find_note(payload):
            return
        if self._prefix.is_used_up:
            self._pending += [_Pending(one) for one in self._restart()]
        self._pending.append(_Pending(payload))
        if self._lock.locked() and _inside.get() == self.ref.run:
            return  # made by a tool, while its call is under way: written at the end of that
        async with self._lock, self._unbroken():
            await self._flush()

    def _restart(self) -> list[str]:
        """The event that ends an earlier attempt's remarks that this one does not repeat; none when there are none."""
        kept = self._prefix.at
        return [event_json({"kind": "restart", "gen": self.ref.gen, "kept": kept})] if self._prefix.pass_by() else []

    async def wrote(self, path: str, digest: Digest) -> None:
        """Say what was put into the workspace, where that is fenced. The next event joins it."""
        await self.attendance.check()
        if self.ref.epoch:
            async with self._unbroken():
                await self._report(path, digest)

    async def _report(self, path: str, digest: Digest) -> None:
        # What a tool writes is part of its call: who is told that again is not told of the write.
        if _inside.get() != self.ref.run and await self.answered("write", f"{path}\n{digest}") is not None:
            return
        self._writes += 1
        step, receipt = f"{self.step()}.{self._writes}", self._runtime.token()
        decision = await self._bus.write(self.ref, step, path, digest, receipt)
        if not decision.applied:
            await self.lost(decision)
        payload = event_json({"kind": "write", "path": path, "digest": digest})
        self._pending.append(_Pending(payload, Receipt(step, receipt)))

    async def finish(self) -> None:
        """Before the answer: all is written, and nothing of an earlier attempt is left that this one never did.

        A solver that was left behind may answer when the next attempt is at work: it would end that one's.
        """
        await self.attendance.check()
        async with self._lock:
            if self.attendance.is_present():
                if not self._prefix.is_used_up or self._fan_out:
                    await self.diverge("it went another way: it answered before it had asked for all that was recorded")
                if self._announced is not None:
                    await self.lose()
                self._pending += [_Pending(one) for one in self._restart()]
                await self._flush()
                self.attendance.end()  # before anybody has a turn: what is announced now would be in the seal's way
                return
        await self.attendance.check()  # it ended while this waited
