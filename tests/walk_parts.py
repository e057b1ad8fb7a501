"""Parts of the walk through every script: what the holder of a run does between its claim and its end.

holder = Holder(batch, ref, entry)
async for step in model_calls(holder):       # each part ends with nothing open, and the holder at the new head
    yield step
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from bus.port import Chunk, Group, Outcome, Receipt, Ref
from bus.port_calls import MODEL_DESK, ModelCall
from bus.types import Decision, Digest, Gen
from tests.batches import W1, Batch
from tests.model_calls import LOST, answered, asked, judged
from tests.tool_calls import Tools

__all__ = ["Holder", "Step", "judge_call", "model_calls", "tool_calls", "turn"]


@dataclass(slots=True)
class Step:
    """One call of one script."""

    script: str
    call: Callable[[], Awaitable[object]]
    expected: str = "commit"
    answer: object = None

    async def send(self) -> None:
        """Call the script, and insist on its answer. Raises what the bus raises; then nothing was answered."""
        self.answer = await self.call()
        for decision in self.answer if isinstance(self.answer, list) else [self.answer]:
            if isinstance(decision, Decision):
                said = " ".join(word for word in (decision.verb, decision.reason) if word)
                assert said == self.expected, f"{self.script}: {decision}"

    @property
    def answered(self) -> Mapping[str, Any]:
        """The fields of the answer."""
        assert isinstance(self.answer, Decision)
        return self.answer.answer


@dataclass(slots=True)
class Holder(Tools):
    """A run in a worker's hands, and where its conversation stands."""

    def ask(self, n: int) -> ModelCall:
        """A fresh attempt at the conversation's n-th question."""
        return asked(self.ref, n=n, parent=self.head, seq=self.length + 1)

    def stand(self, step: Step) -> None:
        """Go on from where a step has left the conversation."""
        self.head, self.length = step.answered["head"], step.answered["length"]


# --- model calls ------------------------------------------------------------------------------------------


async def model_calls(holder: Holder) -> AsyncIterator[Step]:
    """Three questions: one is answered, one is given up, and of one nobody knows what became but its endpoint."""
    batch, ref = holder.batch, holder.ref
    bus, name = batch.bus, batch.name

    call = holder.ask(1)
    yield (opened := Step("run.open_call", partial(bus.open_call, ref, call)))
    yield Step("run.flush", partial(bus.flush, ref, call, [Chunk(1, 10)]))
    reply = answered(chunks=[Chunk(2, 20)])
    yield (bound := Step("run.bind_call", partial(bus.bind_call, ref, call, opened.answered["desk_gen"], reply)))
    holder.head, holder.length = bound.answered["head"], holder.length + 1

    call = holder.ask(2)
    yield Step("run.open_call", partial(bus.open_call, ref, call))
    yield Step("run.drop_call", partial(bus.drop_call, ref, call, [Chunk(1, 5)], cancelled=True))
    yield (lost := Step("run.resolve", partial(bus.resolve, ref, holder.head, holder.length + 1, LOST)))
    holder.stand(lost)

    call = holder.ask(3)
    yield Step("run.open_call", partial(bus.open_call, ref, call))
    yield Step("run.drop_call", partial(bus.drop_call, ref, call, cancelled=False))
    yield (swept := Step("run.sweep", partial(bus.sweep, name, 50, MODEL_DESK, {call.desk_lease: 30})))
    assert swept.answered == {"freed": 1}
    yield (lost := Step("run.resolve", partial(bus.resolve, ref, holder.head, holder.length + 1, LOST)))
    holder.stand(lost)


async def judge_call(batch: Batch, ref: Ref) -> AsyncIterator[Step]:
    """A scorer asks the judge's model, and is answered."""
    call = judged(ref)
    yield (opened := Step("run.open_judge", partial(batch.bus.open_judge, ref, call)))
    yield Step("run.bind_judge", partial(batch.bus.bind_judge, ref, call, opened.answered["desk_gen"], answered()))


# --- tools ------------------------------------------------------------------------------------------------


async def tool_calls(holder: Holder) -> AsyncIterator[Step]:
    """A fan-out whose message is lost, and sent anew; it is joined with what was written to the holder's disk."""
    batch, ref = holder.batch, holder.ref
    bus = batch.bus
    fan_out = holder.fan_out()
    [intent] = fan_out.intents
    yield Step("run.put_tools", partial(bus.put_tools, ref, fan_out))
    entry = (await batch.row(ref.run))[f"o.e:{intent.id}"]
    await batch.wire.call("XDEL", batch.keys.stream("tools"), entry)
    yield Step("run.tool_requeue", partial(bus.tool_requeue, batch.name, ref.run, intent.id))
    async for step in _execution(batch):
        yield step

    written = f"{fan_out.step}.w"
    content = Digest(hashlib.sha256(b"content").hexdigest())
    receipt = Receipt(written, f"receipt of {written}")
    yield Step("run.write", partial(bus.write, ref, written, "a.txt", content, receipt.receipt))
    yield (joined := Step("run.join", partial(bus.join, ref, fan_out, "joined", [receipt])))
    holder.stand(joined)


async def turn(holder: Holder) -> AsyncIterator[Step]:
    """Give the conversation up: what its tool did is undone first, by whoever is given the undo."""
    ask = partial(holder.batch.bus.turn, holder.ref, holder.head, "another way")
    yield Step("run.turn", ask, "in_doubt in_flight")
    async for step in _execution(holder.batch):
        yield step
    yield (turned := Step("run.turn", ask))
    holder.ref = replace(holder.ref, conversation=turned.answered["conversation"])
    holder.stand(turned)


async def _execution(batch: Batch) -> AsyncIterator[Step]:
    """The next effect, or undo, from its message to its outcome."""
    bus, name = batch.bus, batch.name
    entry = await batch.delivered(W1, Group.TOOLS)
    run, intent = entry.run, entry.fields["intent"]
    executor = f"executor of {intent}"
    yield (claim := Step("run.tool_claim", partial(bus.tool_claim, entry, executor, W1)))
    gen, slot = Gen(claim.answered["gen"]), "" if "undo" in claim.answered else f"slot of {intent}"
    yield Step("run.tool_sent", partial(bus.tool_sent, name, run, intent, gen, executor, slot))
    outcome = Outcome(True, "done", intent)
    yield Step("run.tool_complete", partial(bus.tool_complete, name, run, intent, gen, executor, outcome))
