"""What may be asked of tools, drawn at random: fan-outs and their executors, writes, conversations given up."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from bus.chain import next_head
from bus.models.join import window_of
from bus.port import FanOut, Group, Intent, Outcome, Receipt, Ref
from bus.types import ConsumerId, Digest, Gen, RunId
from tests.session_calls import CallSession
from tests.session_life import CONSUMERS, Message

__all__ = ["INVERSES", "ToolSession"]

INVERSES = '{"mail":"unmail","book":"unbook"}'
TOOLS = ("mail", "mail", "book", "launch")  # what is launched is launched


@dataclass(frozen=True, slots=True)
class Execution:
    """A claim that was granted."""

    run: RunId
    intent: str
    gen: Gen
    executor: str


class ToolSession(CallSession):
    """See the module's text."""

    fan_outs: list[tuple[Ref, FanOut]]
    executions: list[Execution]

    async def write(self) -> None:
        if not self.held:
            return
        ref = self.holder()
        step = f"{ref.run}~{ref.conversation}.{self.row(ref.run).length + 1}.w"
        path, receipt = self.rng.choice(["a", "a", "b"]), self.one(f"{ref.run}w")
        call = (step if self.often(0.97) else "elsewhere", path, Digest(path * 64), receipt)
        decision = await self.command("write", f"{ref} {call}", lambda side: side.bus.write(ref, *call))
        if decision.applied:
            self.receipts.append((ref, Receipt(call[0], decision.answer["receipt"])))

    async def put_tools(self) -> None:
        if not self.held:
            return
        ref = self.holder()
        known = [one for of, one in self.fan_outs if of.run == ref.run]
        if known and self.often(0.25):  # a successor that asks again, or a ghost
            fan_out = known[-1]
            if self.often(0.3):
                first = replace(fan_out.intents[0], args='{"n":2}')
                fan_out = replace(fan_out, intents=[first, *fan_out.intents[1:]])
            elif self.often(0.15):
                fan_out = self.fan_out(ref, fan_out.parent, fan_out.seq)
        else:
            fan_out = self.fan_out(ref, *self.prefix(ref.run))
        decision = await self.command("put_tools", f"{ref} {fan_out}", lambda side: side.bus.put_tools(ref, fan_out))
        if decision.applied and fan_out not in known:
            self.fan_outs.append((ref, fan_out))

    def fan_out(self, ref: Ref, parent: Digest, seq: int) -> FanOut:
        """One that was not announced before."""
        step = f"{ref.run}~{ref.conversation}.{seq}"
        count = self.rng.randint(1, 3)
        intents = [Intent(f"{step}.{i}", self.rng.choice(TOOLS), '{"n":1}') for i in range(1, count + 1)]
        digest = Digest(hashlib.sha256(repr(intents).encode()).hexdigest())
        window = window_of(step, [one.id for one in intents], int(self.spec.limits["budget_epoch"]))
        return FanOut(step, parent, seq, digest, intents, window, self.rng.choice([0, 0, 10, 10, 400]))

    async def tool_claim(self) -> None:
        pending = self.pending(Group.TOOLS)
        old = [message for message in self.messages.values() if message.group is Group.TOOLS]
        consumer = self.rng.choice(CONSUMERS)
        if pending and self.often(0.9):
            message = self.messages[self.rng.choice(list(pending))]
            consumer = ConsumerId(pending[message.name]) if self.often(0.92) else consumer
        elif old:
            message = self.rng.choice(old)
        else:
            return
        await self.executed(message, self.one("e"), consumer)

    async def executed(self, message: Message, executor: str, consumer: ConsumerId) -> None:
        what = f"{message.name} ({message.intent}) as {executor} by {consumer}"
        decision = await self.command(
            "tool_claim",
            what,
            lambda side: side.bus.tool_claim(message.on(side, self.batch), executor, consumer),
            Group.TOOLS,
        )
        if decision.applied:
            self.seen["tool_claim undo"] += "undo" in decision.answer
            told = decision.answer
            self.executions.append(Execution(message.run, told["intent"], Gen(told["gen"]), executor))

    def fitting(self, *states: str) -> list[Execution]:
        """Those whose intent is theirs still, in one of these states."""
        at = self.twins.memory.world.batches[self.batch]
        found = []
        for one in self.executions:
            intent = at.outbox.intents.get(one.intent)
            if intent is not None and intent.executor == one.executor and intent.state in states:
                found.append(one)
        return found

    def execution(self, *states: str) -> Execution | None:
        """One that was granted, mostly one that can go on; seldom under another's name."""
        if not self.executions:
            return None
        fitting = self.fitting(*states)
        one = self.rng.choice(fitting if fitting and self.often(0.9) else self.executions[-6:])
        if self.often(0.06):
            other = self.rng.choice(self.executions)
            changes = [{"gen": Gen(one.gen + 1)}, {"executor": other.executor}, {"intent": other.intent}]
            one = replace(one, **self.rng.choice([*changes, {"intent": "unknown"}]))  # type: ignore[arg-type]
        return one

    async def tool_sent(self) -> None:
        one = self.execution("executing")
        if one is not None:
            slot = self.rng.choice(["s1", "s2", "s3", "" if self.often(0.2) else "s1"])
            await self.command(
                "tool_sent",
                f"{one} in {slot}",
                lambda side: side.bus.tool_sent(self.batch, one.run, one.intent, one.gen, one.executor, slot),
                Group.TOOLS,
            )

    async def tool_complete(self) -> None:
        one = self.execution("awaiting_ack", *(["executing"] if self.often(0.1) else []))
        if one is None:
            return
        echo = one.intent if self.often(0.9) else self.rng.choice([None, "another"])
        said = self.rng.choice(["done", "done", '{"tokens":4}', '{"tokens":9}'])
        said = "" if self.often(0.04) else said
        outcome = Outcome(self.often(0.8), said, echo)
        await self.command(
            "tool_complete",
            f"{one} {outcome}",
            lambda side: side.bus.tool_complete(self.batch, one.run, one.intent, one.gen, one.executor, outcome),
            Group.TOOLS,
        )

    async def join(self) -> None:
        if not self.fan_outs or not self.held:
            return
        ref = self.holder()
        mine = [one for of, one in self.fan_outs if of.run == ref.run and of.conversation == ref.conversation]
        _, fan_out = self.rng.choice(self.fan_outs)
        if mine and self.often(0.95):
            fan_out = mine[-1] if self.often(0.8) else self.rng.choice(mine)
        if self.often(0.06):
            fan_out = self.rng.choice(
                [
                    replace(fan_out, digest=Digest("e" * 64)),
                    replace(fan_out, window="another"),
                    replace(fan_out, parent=next_head(fan_out.parent, "forged")),
                    replace(fan_out, intents=fan_out.intents[:1]),
                    replace(fan_out, intents=[Intent("unknown", "mail", "{}")]),
                ]
            )
        told, text = self.told(ref), self.rng.choice(["joined"] * 6 + ["otherwise"])
        await self.command(
            "join", f"{ref} {fan_out} {text} {told}", lambda side: side.bus.join(ref, fan_out, text, told)
        )

    async def turn(self) -> None:
        if not self.held:
            return
        ref = self.holder()
        abandoned = Digest(self.row(ref.run).head)
        if self.often(0.06):
            abandoned = next_head(abandoned, "forged")
        text = self.rng.choice(["turned"] * 8 + ["turned otherwise"])
        decision = await self.command("turn", f"{ref} {text}", lambda side: side.bus.turn(ref, abandoned, text))
        if decision.verb == "commit":
            self.held.append(replace(ref, conversation=decision.answer["conversation"]))

    async def tool_requeue(self) -> None:
        known = [message for message in self.messages.values() if message.group is Group.TOOLS]
        if known:
            message = self.rng.choice(known[-6:])
            await self.command(
                "tool_requeue",
                message.intent,
                lambda side: side.bus.tool_requeue(self.batch, message.run, message.intent),
                Group.TOOLS,
            )

    async def forge_tool(self) -> None:
        known = [message for message in self.messages.values() if message.group is Group.TOOLS]
        if known:
            message = self.rng.choice(known[-6:])
            await self.step(
                f"forge a second {message.intent}", lambda side: side.forge(Group.TOOLS, message.fields), Group.TOOLS
            )
