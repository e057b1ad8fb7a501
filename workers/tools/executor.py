"""Executes what runs want done outside, from the `tools` stream: any worker, for any run.

    a slot that is free → tool_claim → tool_sent → the call → tool_complete

Each claim has an executor's name of its own. Only `tool_sent` licenses a call, and what comes after it decides how the
call may end:

| what happened                              | what is said of it                                                 |
|--------------------------------------------|--------------------------------------------------------------------|
| this machine has not got the program       | it is not claimed: another machine's to make                       |
| it died, or was stopped, before `tool_sent`| nothing: the message is delivered again, and claimed by another    |
| the tool answered and sent the key back    | done                                                               |
| the tool refused: nothing was done         | failed                                                             |
| a timeout, a broken connection, HTTP 5xx … | nothing: it is neither repeated nor given up. The message is kept, |
|                                            | and whoever claims it after the bound takes the call back          |
| the license came too late                  | failed: nothing was sent                                           |

A tool that only reads needs no license, and no doubt comes of it: when its executor dies, the next one reads again. Its
intent ends as failed, which is what fence 2 calls one that has done nothing, so that nobody tries to take it back; what
was read is its observation (`workers.tools.observing`).

A call may kill the process that makes it, and all that this one holds. So a message that somebody had before, and whose
call may still be made, is claimed when nothing else is driven here (`workers.quarantine`). What only waits for a slot
waits before that: neither is it claimed, nor does it keep anybody out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

import structlog

from bus.errors import MachineError
from bus.partitions import share
from bus.port import BatchInfo, BatchSpec, Bus, Entry, IntentState, Outcome, Runtime
from bus.types import BatchId, ConsumerId, Decision, Digest, Gen, LeaseId, Plane, Verb
from workers.catalogue import Served
from workers.closing import Closable
from workers.lease import Lease
from workers.quarantine import Owner, Place, Quarantine
from workers.redaction import redacted
from workers.suite import Suite
from workers.tools.keys import wire_key
from workers.tools.observing import kept_text, read_text
from workers.tools.slots import Looks, Slot, Slots
from workers.tools.tables import ToolTable
from workers.tools.text import shortened
from workers.tools.toolbox import Toolbox, Toolboxes
from workers.tools.values import Answer, Order, SilenceError, ToolContext
from workers.tools.waking import Wakings

__all__ = ["GRACE", "Executor"]

log = structlog.get_logger("evalbus.tools")

GRACE: Final = 8.0
"""Seconds that a call which was sent is waited for when the process is told to stop; a fleet kills after 10."""

_ECHO: Final = 200
"""Characters of what a tool sent back in the place of the key."""

_SHORTEST: Final = 0.05
_LONGEST: Final = 1.0
"""Seconds between two looks at the slots, or two questions for room on the plane."""

_UNDO: Final = "~undo"
"""What an undo's name ends in."""

_CALLABLE: Final = frozenset({IntentState.QUEUED, IntentState.EXECUTING})
"""It has not left: whoever claims it calls it."""


@dataclass(frozen=True, slots=True)
class _Claimed:
    """An intent that is this executor's to execute."""

    entry: Entry
    intent: str
    gen: Gen
    tool: str
    args: dict[str, object]
    executor: str
    plane: Plane
    key: str
    """As the world knows the intent."""
    undoes: str | None
    """The key that it undoes, likewise."""

    @classmethod
    def of(cls, entry: Entry, executor: str, decision: Decision, info: BatchInfo) -> _Claimed | None:
        """What a claim granted; None when it granted nothing: it has ended, or is another's, or must be waited for."""
        told = decision.answer
        if not decision.applied or "args" not in told:
            return None
        key, *undoes = (
            wire_key(info.plane, info.incarnation, intent) for intent in (told["intent"], told.get("undo")) if intent
        )
        return cls(
            entry=entry,
            intent=told["intent"],
            gen=Gen(told["gen"]),
            tool=told["tool"],
            args=json.loads(told["args"]),
            executor=executor,
            plane=info.plane,
            key=key,
            undoes=undoes[0] if undoes else None,
        )


class Executor:
    """`workers.consumer.Handler` of the group that reads the `tools` stream."""

    def __init__(
        self,
        bus: Bus,
        runtime: Runtime,
        name: ConsumerId,
        boxes: Toolboxes,
        wakings: Wakings,
        quarantine: Quarantine,
        in_use: Callable[[], Collection[Digest]],
    ) -> None:
        """`wakings`: told of each intent that ended here. `quarantine`: of all that this process drives. `in_use`: of
        which suites it may have runs.
        """
        self._bus, self._runtime, self._name = bus, runtime, name
        self._boxes, self._wakings, self._quarantine = boxes, wakings, quarantine
        self._in_use = in_use
        self._slots, self._looks = Slots(runtime.jitter), Looks(bus)

    def prepare(self, suite: Suite, spec: BatchSpec) -> None:
        """Import the suite's tools. Raises InputError."""
        self._boxes.prepare(suite)

    def forget_all_but(self, suites: Collection[Digest]) -> list[Closable]:
        """See Handler. The toolboxes are the process's, for its runs, too."""
        return self._boxes.forget_all_but({*suites, *self._in_use()})

    def time_of(self, served: Served) -> float:
        """The time of the slowest tool."""
        return max((tool.timeout for tool in served.suite.tools.values() if tool.from_stream), default=0.0)

    async def handle(self, lease: Lease, served: Served, lease_id: LeaseId) -> float | None:
        """Claim an intent and execute it. Returns the seconds after which to look again at one that is in doubt."""
        if not await self._is_in_doubt(lease, served, lease_id):
            return None
        lease.redelivered = True
        doubt = min(served.lease, int(served.info.spec.limits.get("ack_bound_ms", 0)) / 4000)
        return max(doubt, _SHORTEST)

    async def _is_in_doubt(self, lease: Lease, served: Served, lease_id: LeaseId) -> bool:
        entry, intent = lease.entry, lease.entry.fields.get("intent", "")
        # A message that nobody had before names the tool of an intent that waits to be called.
        tool = "" if lease.redelivered else entry.fields.get("tool", "")
        if not tool:
            rows = await self._bus.intents(entry.batch, entry.run, [intent])
            if not rows or rows[0].state not in _CALLABLE:  # a claim may end it, or call it back, and makes no call
                decision = await self._claim(entry, lease_id)
                return decision.verb is Verb.IN_DOUBT or "args" in decision.answer
            tool = rows[0].tool
        box = self._boxes.of(served.suite)
        table = box.tables.get(tool)
        if table is not None:
            box.check(tool)
        count, part = 1 if table is None else table.slots, served.info.spec.part
        if part is not None and table is not None and table.effects != "none":
            # Who has a place is written down in each partition by itself, so each has some of them.
            places = self._slots.one(tool, share(count, part.number, part.of), entry.batch)
        else:
            places = self._slots.one(tool, count)
        async with places as slot:
            if table is not None and table.effects != "none" and not _is_undo(intent):
                await self._choose(entry.batch, slot)
            owner = Owner(entry.batch, entry.run)
            async with self._quarantine.enter(owner, suspect=lease.redelivered, is_tool=True) as place:
                decision = await self._claim(entry, lease_id)
                claimed = _Claimed.of(entry, lease_id, decision, served.info)
                if claimed is None:
                    return decision.verb is Verb.IN_DOUBT
                if claimed.tool != tool:  # a message that nobody here has written: its row has the last word
                    return True
                with structlog.contextvars.bound_contextvars(
                    batch=entry.batch, intent=claimed.intent, tool=claimed.tool
                ):
                    return await self._execute(claimed, box, slot, place)

    async def _claim(self, entry: Entry, lease_id: LeaseId) -> Decision:
        decision = await self._bus.tool_claim(entry, lease_id, self._name)
        if not decision.applied:
            self._ring(entry)  # a claim ends what can't go on
            log.info("tool.not_claimed", batch=entry.batch, run=entry.run, decision=str(decision))
        return decision

    async def _choose(self, batch: BatchId, slot: Slot) -> None:
        """Wait for a slot that no call of the fleet has. Looking is free; asking in vain is a line in the history."""
        names, pause = slot.few(), _SHORTEST
        while not slot.choose(names, await self._looks.free(batch, names)):
            if len(names) < slot.count:
                names = slot.names
                continue
            await self._runtime.sleep(pause * (0.75 + 0.5 * self._runtime.jitter()))
            pause = min(2 * pause, _LONGEST)

    async def _execute(self, claimed: _Claimed, box: Toolbox, slot: Slot, place: Place) -> bool:
        table = box.tables.get(claimed.tool)
        if table is None:  # the same suite declared it: somebody put the row by other means
            return await self._complete(claimed, Answer(False, f"the suite has no tool {claimed.tool!r}"))
        if table.effects == "none":
            answer = await box.run(self._order(claimed, table))
            return await self._complete(claimed, Answer(False, read_text(answer)))
        return await self._act(claimed, box, table, slot, place)

    async def give_back(self, lease: Lease, fault: MachineError | None = None) -> bool:
        """What was not sent is left to redelivery; of what was sent and not answered, nobody knows."""
        return True

    async def _act(self, claimed: _Claimed, box: Toolbox, table: ToolTable, slot: Slot, place: Place) -> bool:
        if (why := await box.ready(claimed.tool)) is not None:
            return await self._complete(claimed, Answer(False, why))
        entry, pause = claimed.entry, _SHORTEST
        while True:
            # The bound begins on the server after this, so our clock is on the safe side.
            asked = self._runtime.now()
            decision = await self._bus.tool_sent(
                entry.batch, entry.run, claimed.intent, claimed.gen, claimed.executor, slot.name or ""
            )
            if decision.applied:
                break
            if decision.reason not in ("slot_busy", "capacity"):
                log.info("tool.not_sent", decision=str(decision))
                self._ring(entry)
                return decision.verb is Verb.IN_DOUBT
            if decision.reason == "slot_busy":
                slot.lose()
            async with place.outside():
                if decision.reason == "capacity":
                    await self._runtime.sleep(pause * (0.75 + 0.5 * self._runtime.jitter()))
                    pause = min(2 * pause, _LONGEST)
                if claimed.undoes is None:
                    await self._choose(entry.batch, slot)
        late = asked + decision.answer["bound_ms"] / 1000 - table.timeout
        call = asyncio.create_task(self._call(claimed, box, table, late))
        return await _to_its_end(call)

    async def _call(self, claimed: _Claimed, box: Toolbox, table: ToolTable, late: float) -> bool:
        if self._runtime.now() > late:
            return await self._complete(claimed, Answer(False, "the license to call came too late; nothing was sent"))
        try:
            answer = await box.run(self._order(claimed, table))
        except SilenceError as silence:
            log.warning("tool.silent", why=str(silence))
            return True
        return await self._complete(claimed, answer)

    async def _complete(self, claimed: _Claimed, answer: Answer) -> bool:
        # What came back instead of the key may be anything, such as a secret that was sent along.
        other = answer.echo and shortened(redacted(answer.echo), _ECHO)
        if other == claimed.intent:  # the bare id is no key: it is the same in every batch of that name
            other = None
        echo = claimed.intent if answer.echo == claimed.key else other
        decision = await self._bus.tool_complete(
            claimed.entry.batch, claimed.entry.run, claimed.intent, claimed.gen, claimed.executor,
            Outcome(answer.ok, kept_text(answer.text), echo),
        )  # fmt: skip
        self._ring(claimed.entry)
        if not decision.applied:
            log.warning("tool.not_completed", decision=str(decision))
        return decision.verb is Verb.IN_DOUBT

    def _ring(self, entry: Entry) -> None:
        """The end of an undo is that of the intent that it undoes."""
        self._wakings.ring(entry.batch, entry.run, entry.fields.get("intent", "").removesuffix(_UNDO))

    def _order(self, claimed: _Claimed, table: ToolTable) -> Order:
        context = ToolContext(
            key=claimed.key,
            plane=claimed.plane,
            run=claimed.entry.run,
            deadline=self._runtime.now() + table.timeout,
            undoes=claimed.undoes,
        )
        return Order(claimed.tool, claimed.args, context)


def _is_undo(intent: str) -> bool:
    """Such a one needs no slot of the fleet's: the call that it undoes had one."""
    return intent.endswith(_UNDO)


async def _to_its_end(call: asyncio.Task[bool]) -> bool:
    """Await a call that was licensed, also when told to stop meanwhile: then a grace time longer, and no more."""
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        done, _ = await asyncio.wait({call}, timeout=GRACE)
        if not done:
            call.cancel()
            await asyncio.wait({call}, timeout=1.0)
        elif not call.cancelled() and (error := call.exception()) is not None:
            log.error("tool.failed", why=str(error))
        raise
