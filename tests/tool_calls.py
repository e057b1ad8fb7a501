"""Tools of one run on a real server, and short ways to bring an effect where a test wants it.

tools = await Tools.open(batch)              # a run in w1's hands
fan_out = await tools.put(3)                 # three calls, announced
call = await tools.sent()                    # the next one, claimed by an executor of w2's, and sent
await tools.complete(call)
await tools.join(fan_out)
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from bus.chain import EMPTY_HEAD
from bus.fences.fence import canonical
from bus.fences.join import window_of
from bus.port import Entry, FanOut, Group, Intent, IntentState, Outcome, Ref
from bus.types import ConsumerId, Decision, Digest, Gen
from tests.batches import W1, W2, Batch

__all__ = ["BOUND_MS", "INVERSES", "START_MS", "ToolCall", "Tools", "fan_out"]

BOUND_MS = 1_000
INVERSES = json.dumps({"book": "cancel", "cancel": "book"})
"""`book` can be undone, and so could `cancel`, if it were not an undo; `pay` cannot."""
START_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class ToolCall:
    """An effect in an executor's hands."""

    entry: Entry
    executor: str
    answer: Decision

    @property
    def intent(self) -> str:
        """Its id."""
        return self.entry.fields["intent"]

    @property
    def gen(self) -> Gen:
        """Its generation in fence 2."""
        return Gen(self.answer.answer["gen"])


@dataclass(slots=True)
class Tools:
    """See the module's text."""

    batch: Batch
    ref: Ref
    entry: Entry
    head: Digest = EMPTY_HEAD
    length: int = 0
    names: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    async def open(cls, batch: Batch, entry: Entry | None = None, consumer: ConsumerId = W1) -> Tools:
        """Claim the next run, or the one of `entry`."""
        held = await batch.claimed(consumer, entry)
        told = held.decision.answer
        ref = replace(held.ref, conversation=told["conversation"], epoch=told["epoch"])
        return cls(batch, ref, held.entry, told["head"], told["length"])

    async def succeeded(self) -> Tools:
        """The run in its next holder's hands: this one fell silent."""
        await self.batch.taken(self.entry, W2)
        later = await Tools.open(self.batch, self.entry, W2)
        later.names = self.names
        return later

    async def clock(self, ms: int) -> None:
        """Let the server's time stand at so many ms after the start."""
        await self.batch.wire.call("HSET", self.batch.keys.batch_row, "clock", START_MS + ms)

    # --- the holder --------------------------------------------------------------------------------------

    def fan_out(self, count: int = 1, tool: str = "book", *, n: int = 1, cost: int = 0, **args: object) -> FanOut:
        """So many calls of a tool, as the conversation's step `n`."""
        step = f"{self.ref.run}~{self.ref.conversation}.{n}"
        intents = [Intent(f"{step}.{i}", tool, canonical({"i": i} | args).decode()) for i in range(count)]
        digest = hashlib.sha256(repr(intents).encode()).hexdigest()
        window = window_of(step, [one.id for one in intents], 0)
        return FanOut(step, self.head, self.length + 1, Digest(digest), intents, window, cost)

    async def put(self, count: int = 1, tool: str = "book", *, n: int = 1, cost: int = 0) -> FanOut:
        """Announce it."""
        fan_out = self.fan_out(count, tool, n=n, cost=cost)
        decision = await self.batch.bus.put_tools(self.ref, fan_out)
        assert decision.applied, decision
        return fan_out

    async def join(self, fan_out: FanOut, payload: str = "joined") -> Decision:
        """Join it, and stand where it ends."""
        decision = await self.batch.bus.join(self.ref, fan_out, payload)
        if decision.applied:
            self.head, self.length = decision.answer["head"], decision.answer["length"]
        return decision

    async def turn(self) -> Decision:
        """Give the conversation up, and stand in the next one."""
        decision = await self.batch.bus.turn(self.ref, self.head, f"gave {self.head[:8]} up")
        if decision.applied:
            told = decision.answer
            self.ref = replace(self.ref, conversation=told["conversation"])
            self.head, self.length = told["head"], told["length"]
        return decision

    # --- an executor -------------------------------------------------------------------------------------

    async def delivered(self, consumer: ConsumerId = W2) -> Entry:
        """The next new message of a tool."""
        return await self.batch.delivered(consumer, Group.TOOLS)

    async def claim(self, entry: Entry, consumer: ConsumerId = W2, executor: str | None = None) -> ToolCall:
        """Whatever is answered to a claim, by an executor that nobody was before."""
        executor = executor or f"x{next(self.names)}"
        return ToolCall(entry, executor, await self.batch.bus.tool_claim(entry, executor, consumer))

    async def claimed(self, entry: Entry | None = None) -> ToolCall:
        """The next effect, claimed."""
        call = await self.claim(entry or await self.delivered())
        assert call.answer.applied, call.answer
        return call

    async def send(self, call: ToolCall, slot: str | None = None) -> Decision:
        """Say that the call leaves; without a name, under a slot of its own."""
        return await self.batch.bus.tool_sent(
            self.batch.name, self.ref.run, call.intent, call.gen, call.executor, slot or f"slot of {call.intent}"
        )

    async def sent(self, entry: Entry | None = None) -> ToolCall:
        """The next effect, sent."""
        call = await self.claimed(entry)
        decision = await self.send(call)
        assert decision.applied, decision
        return call

    async def complete(
        self, call: ToolCall, observation: str = "done", *, ok: bool = True, echo: str | None = ""
    ) -> Decision:
        """Say what the tool said. `echo`: what it sent back, when it is not the key of the call."""
        outcome = Outcome(ok, observation, call.intent if echo == "" else echo)
        return await self.batch.bus.tool_complete(
            self.batch.name, self.ref.run, call.intent, call.gen, call.executor, outcome
        )

    async def done(self, *, ok: bool = True) -> ToolCall:
        """The next effect, through every step."""
        call = await self.sent()
        decision = await self.complete(call, ok=ok)
        assert decision.applied, decision
        return call

    async def taken(self, call: ToolCall, consumer: ConsumerId = W1) -> ToolCall:
        """The message of a silent executor, claimed by somebody else; whatever that is answered."""
        return await self.claim(await self.batch.taken(call.entry, consumer), consumer)

    # --- looking -----------------------------------------------------------------------------------------

    async def states(self) -> dict[str, IntentState]:
        """Every effect of the run, by id without the run's name."""
        rows = await self.batch.bus.effects(self.batch.name, self.ref.run)
        return {one.id.removeprefix(f"{self.ref.run}~"): one.state for one in rows}

    async def messages(self) -> list[str]:
        """The effects that have a message in the stream, oldest first, by id without the run's name."""
        found = await self.batch.wire.call("XRANGE", self.batch.keys.stream("tools"), "-", "+")
        return [flat[3].decode().removeprefix(f"{self.ref.run}~") for _, flat in found]


def fan_out(ref: Ref, *tools: str, seq: int = 1) -> FanOut:
    """Calls of these tools, made together."""
    step = f"{ref.run}~{ref.conversation}.1"
    intents = [Intent(f"{step}.{i}", tool, '{"x":1}') for i, tool in enumerate(tools)]
    window = window_of(step, [one.id for one in intents], 1)
    return FanOut(step, Digest(EMPTY_HEAD), seq, Digest("d" * 64), intents, window)
