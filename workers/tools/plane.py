"""`run.tools`: what a solver calls tools with.

    text = await run.tools.call("search", query="…")
    one, two = await run.tools.gather(call("book", seat="12A"), call("mail", to="…"))

What is called together is one event of the transcript, written when all of it has ended: a run that another worker
takes over is told the same again, and nothing is called twice.

| the calls of one `gather`         | where they are made              | what is written before them                   |
|-----------------------------------|----------------------------------|-----------------------------------------------|
| read, or change the workspace     | here                             | nothing: they can be made again               |
| have effects outside, or `remote` | by any worker, this one too,     | an intent each, under names that are the same |
|                                   | from the batch's `tools` stream  | in every attempt                              |

Where both kinds are called together, each is made in its own way, and the event waits for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from bus.fences.join import window_of
from bus.nearest import nearest
from bus.port import BatchInfo, Bus, FanOut, Intent, IntentRow, IntentState, Runtime
from bus.types import Decision, Digest, Verb
from workers.conversation import Conversation, Place
from workers.prefix import event_json
from workers.tools.keys import wire_key
from workers.tools.observing import observed
from workers.tools.tables import ToolTable
from workers.tools.text import LONGEST, json_of, shortened
from workers.tools.values import Call, Observation, Order, ToolContext, ToolFailedError, call
from workers.tools.waking import Wakings
from workers.verdict import Over
from workers.workspace import Workspace

if TYPE_CHECKING:
    from workers.tools.toolbox import Toolbox

__all__ = ["MOST", "Tools"]

MOST: Final = 100
"""Calls of one `gather`."""

_ARGUMENTS: Final = 1_000_000
"""Bytes of one call's arguments, as JSON: they are kept with the run, and again in the history."""

_DEEPEST: Final = 100
"""Lists and tables inside each other, in arguments: who reads the history goes down into each of them."""

_EVENT: Final = 200_000
"""Bytes of all results of one event together."""

_SHORTEST: Final = 0.02
_LONGEST: Final = 1.0
"""Seconds between two looks at intents that others execute; before the first one, see `Wakings.first_look`."""

_DIFFERS: Final = frozenset({"args_mismatch", "expected_mismatch", "intent_conflict", "dangling"})
"""The step was announced before, by an attempt that asked for something else."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A call that can be made: its tool is there, and its arguments are JSON."""

    tool: str
    table: ToolTable
    args: Mapping[str, object]
    text: str


class Tools:
    """The tools of one run, for its solver."""

    def __init__(
        self,
        conversation: Conversation,
        bus: Bus,
        runtime: Runtime,
        box: Toolbox,
        info: BatchInfo,
        workspace: Workspace,
        wakings: Wakings,
    ) -> None:
        """`wakings`: where an executor in this process says that it is done."""
        self._conversation, self._bus, self._runtime, self._box = conversation, bus, runtime, box
        self._info, self._workspace, self._wakings = info, workspace, wakings

    def prepare(self, tool: str, /, **args: object) -> Call:
        """A call for `gather`; the same as `workers.tools.call`."""
        return call(tool, **args)

    async def call(self, tool: str, /, **args: object) -> str:
        """Call one tool and wait for its result: text, JSON where it is more than that.

        Raises `ToolFailedError` when the tool failed, LookupError when there is none of that name, and TypeError or
        ValueError for arguments that JSON cannot say.
        """
        [found] = await self.gather(call(tool, **args))
        if not found.ok:
            raise ToolFailedError(found)
        return found.text

    async def gather(self, *calls: Call) -> list[Observation]:
        """Make calls together and wait for all; the results are in the order of the calls, failures among them.

        Raises LookupError, TypeError and ValueError as `call` does, and then nothing was called.
        """
        if len(calls) > MOST:
            raise ValueError(f"{len(calls)} calls at once, the most is {MOST}")
        made = [self._checked(one) for one in calls]
        if not made:
            return []
        asked = json_of([[one.tool, one.args] for one in made])
        request = Digest(hashlib.sha256(asked.encode()).hexdigest())
        conversation = self._conversation
        async with conversation.exchange():
            event = await conversation.answered("tools", request)
            if event is None:
                event = await self._made(made, request)
        return [Observation(one["tool"], one["ok"], one["observation"]) for one in event["results"]]

    def _checked(self, one: Call) -> _Made:
        table = self._box.tables.get(one.tool)
        if table is None:
            known = list(self._box.tables)
            near = nearest(one.tool, known)
            hint = f"did you mean {near!r}?" if near else f"it has {', '.join(known) or 'none'}"
            raise LookupError(f"the suite has no tool {one.tool!r} ({hint})")
        try:
            text = json_of(dict(one.args))
            args = json.loads(text)
        except RecursionError:
            raise ValueError(f"{one.tool}: its arguments are nested more than {_DEEPEST} deep") from None
        if _is_deeper(args, _DEEPEST):
            raise ValueError(f"{one.tool}: its arguments are nested more than {_DEEPEST} deep")
        if (size := len(text.encode())) > _ARGUMENTS:
            raise ValueError(f"{one.tool}: its arguments are {size} bytes, the most is {_ARGUMENTS}")
        return _Made(one.tool, table, args, text)

    async def _made(self, made: Sequence[_Made], request: Digest) -> Mapping[str, Any]:
        place = await self._conversation.place(request)
        if not any(one.table.from_stream for one in made):
            found = await self._here(place, made)
            payload = _payload(place, request, made, found)
            await self._conversation.append([payload], self._conversation.receipts())
            return _event(payload)
        announced = await self._announce(place, made, request)
        # One after the other, for only who merely waits stands aside. What is called elsewhere has begun by now.
        ours, others = await self._here(announced.place, made), await self._there(announced, made)
        payload = await self._join(announced, made, {**ours, **others})
        self._conversation.committed(payload)
        return _event(payload)

    # --- here --------------------------------------------------------------------------------------------

    async def _here(self, place: Place, made: Sequence[_Made]) -> dict[int, Observation]:
        """Make the calls that are made where the run is, all at once; the results by the calls' numbers."""

        async def run(number: int, one: _Made) -> None:
            answer = await self._box.run(self._order(place, number, one))
            found[number] = Observation(one.tool, answer.ok, answer.text)

        found: dict[int, Observation] = {}
        changes = any(one.table.effects == "workspace" for one in made)
        async with (
            self._workspace.watched() if changes else contextlib.nullcontext(),
            asyncio.TaskGroup() as group,
        ):
            for number, one in enumerate(made):
                if not one.table.from_stream:
                    group.create_task(run(number, one))
        return found

    def _order(self, place: Place, number: int, one: _Made) -> Order:
        info = self._info
        context = ToolContext(
            key=wire_key(info.plane, info.incarnation, f"{place.step}.{number}"),
            plane=info.plane,
            run=self._conversation.ref.run,
            deadline=self._runtime.now() + one.table.timeout,
            workspace=self._workspace,
        )
        return Order(one.tool, one.args, context)

    # --- elsewhere ---------------------------------------------------------------------------------------

    async def _announce(self, place: Place, made: Sequence[_Made], request: Digest) -> _Announced:
        while True:
            announced = self._fan_out(place, made, request)
            decision = await self._bus.put_tools(self._conversation.ref, announced.fan_out)
            if decision.applied:
                self._conversation.rejoined()
                return replace(announced, is_new=decision.verb is Verb.COMMIT)
            if decision.reason in _DIFFERS:
                await self._conversation.diverge("it went another way: its next tool calls differ")
                place = await self._conversation.place(request)
                continue
            await self._ended(decision, announced)

    def _fan_out(self, place: Place, made: Sequence[_Made], request: Digest) -> _Announced:
        numbers = {f"{place.step}.{number}": number for number, one in enumerate(made) if one.table.from_stream}
        epoch = int(self._info.spec.limits.get("budget_epoch", 0))
        fan_out = FanOut(
            step=place.step,
            parent=place.parent,
            seq=place.seq,
            digest=request,
            intents=[Intent(name, made[number].tool, made[number].text) for name, number in numbers.items()],
            window=window_of(place.step, list(numbers), epoch),
        )
        return _Announced(place, fan_out, numbers)

    async def _there(self, announced: _Announced, made: Sequence[_Made]) -> dict[int, Observation]:
        """Wait until every intent has ended, whoever executes it; the results by the calls' numbers."""
        async with self._conversation.aside():
            rows = await self._final(list(announced.numbers), is_new=announced.is_new)
        if any(row.state is IntentState.STUCK for row in rows):
            stuck = next(row for row in rows if row.state is IntentState.STUCK)
            await self._conversation.leave(Over("stuck", f"nobody knows what came of {stuck.tool} ({stuck.id})"))
        numbered = [(announced.numbers[row.id], row) for row in rows]
        return {number: observed(row.tool, made[number].table, row) for number, row in numbered}

    async def _final(self, intents: Sequence[str], *, is_new: bool) -> list[IntentRow]:
        ref, began, pause = self._conversation.ref, self._runtime.now(), self._wakings.first_look()
        left, looks = set(intents), 0
        with self._wakings.bell(ref.batch, ref.run) as bell:
            while True:
                if is_new or looks:
                    await bell.wait(left, pause * (0.75 + 0.5 * self._runtime.jitter()))
                    pause = min(1.5 * pause, _LONGEST) if looks else pause / 2
                rows = await self._bus.intents(ref.batch, ref.run, intents)
                looks, left = looks + 1, set(intents) - {row.id for row in rows if row.state.final}
                if not left:
                    self._wakings.waited(self._runtime.now() - began)
                    return rows

    async def _join(self, announced: _Announced, made: Sequence[_Made], found: Mapping[int, Observation]) -> str:
        payload = _payload(announced.place, announced.fan_out.digest, made, found)
        receipts, pause = self._conversation.receipts(), _SHORTEST
        while True:
            decision = await self._bus.join(self._conversation.ref, announced.fan_out, payload, receipts)
            if decision.applied:
                return payload
            if decision.verb is not Verb.IN_DOUBT:
                await self._ended(decision, announced)
            await self._runtime.sleep(pause * (0.75 + 0.5 * self._runtime.jitter()))
            pause = min(2 * pause, _LONGEST)

    async def _ended(self, decision: Decision, announced: _Announced) -> NoReturn:
        """A refusal that ends the run, or the lease. Does not return."""
        step = announced.place.step
        ends = {
            "over_budget": Over("over_budget", f"no tokens are left for the tool calls of {step}"),
            "stuck": Over("stuck", f"nobody knows what came of the tool calls of {step}"),
            "window_exhausted": Over("window_exhausted", f"the tool calls of {step} spent more than their window"),
            "case_closed": Over("window_exhausted", f"the tool calls of {step} were given up before"),
        }
        if (over := ends.get(decision.reason or "")) is not None:
            await self._conversation.leave(over)
        await self._conversation.lost(decision)


@dataclass(frozen=True, slots=True)
class _Announced:
    """A fan-out, and which call each of its intents is."""

    place: Place
    fan_out: FanOut
    numbers: Mapping[str, int]
    is_new: bool = False
    """Nobody had announced it before: none of it has ended yet."""


def _is_deeper(value: object, most: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and (most == 0 or any(_is_deeper(one, most - 1) for one in value))


def _payload(place: Place, request: Digest, made: Sequence[_Made], found: Mapping[int, Observation]) -> str:
    share = min(LONGEST, _EVENT // len(made))
    results = [
        {"tool": one.tool, "ok": found[number].ok, "observation": shortened(found[number].text, share)}
        for number, one in enumerate(made)
    ]
    return event_json({"kind": "tools", "step": place.step, "request": request, "results": results})


def _event(payload: str) -> Mapping[str, Any]:
    """What was written, as the next attempt will read it: both must see the same."""
    event: Mapping[str, Any] = json.loads(payload)
    return event
