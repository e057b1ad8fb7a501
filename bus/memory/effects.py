"""The executor's steps in memory: a tool's message is claimed, its call licensed, its outcome told.

An effect is an intent, or the undo of one. Neither messages nor counts are kept by hand: a message is there for each
effect that waits for somebody, and both follow from the states that a step leaves in fence 2.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from bus.memory.batch import MemoryBatch, ToolLife
from bus.memory.command import Command
from bus.memory.steps import MemorySteps
from bus.models import Answer, Verb
from bus.models.outbox import UNDO, State, undone_by
from bus.port import Entry, Group, Outcome, RunState
from bus.types import BatchId, ConsumerId, Decision, Gen, RunId

__all__ = ["EffectSteps", "args_text", "follow", "give_up"]

_WAITING = (State.QUEUED, State.EXECUTING, State.AWAITING_ACK)


class EffectSteps(MemorySteps):
    """See the module's text."""

    async def tool_claim(self, entry: Entry, executor: str, consumer: ConsumerId) -> Decision:
        """Take a tool's message. Answer: intent, gen, tool, args, undo (the key that it undoes, for an undo)."""
        run, name = entry.run, entry.fields.get("intent", "")
        command = self._begin(
            "tool_claim", entry.batch, run, intent_id=name, entry=entry.id, executor=executor, consumer=consumer
        )
        at = command.batch
        if command.malformed:
            return command.refused("schema")
        intent = at.outbox.intents[name] if at.has_effect(run, name) else None
        if intent is not None and intent.state is State.EXECUTING and intent.executor == executor:
            return command.again(**_licence(at, name))
        if not command.owns(Group.TOOLS, entry.id, consumer):
            return command.refused("not_owner")
        if intent is None or at.tools[name].entry != entry.id:
            command.acknowledge(Group.TOOLS, entry.id)
            return command.refused("duplicate_entry")
        if intent.state is State.AWAITING_ACK:
            return self._recovered(command, name)
        if _is_over(at, run) and undone_by(name) is None:
            return self._given_up(command, name, executor, "ended")
        if at.tools[name].claims >= at.spec.max_deliveries:
            return self._given_up(command, name, executor, "poison")
        if intent.state is State.EXECUTING:
            command.step(at.outbox, "recover", intent_id=name)
        if not command.step(at.outbox, "claim", intent_id=name, gen=intent.gen, executor=executor):
            return command.refused()
        at.tools[name].claims += 1
        return command.done(Answer(Verb.COMMIT, None, _licence(at, name)))

    def _given_up(self, command: Command, name: str, executor: str, why: str) -> Decision:
        if not give_up(command, name, executor, why):
            return command.refused()
        follow(command, [name])
        return command.done(Answer(Verb.REJECT, why))

    def _recovered(self, command: Command, name: str) -> Decision:
        """A call left, and nobody has said what became of it. 2 and 3 began its bound together, and end it together."""
        at = command.batch
        run = at.tools[name].run
        command.step(at.outbox, "recover", intent_id=name)
        found = command.last
        if found.verb is Verb.IN_DOUBT:
            return command.refused()
        if undone_by(name) is None:
            command.step(at.indoubt, "recover", run=run, key=name, epoch=at.life(run).conversation)
        command.step(at.plane, "release", admission=at.tools[name].admission)
        if found.refused:
            at.refused[found.reason or ""] += 1
        follow(command, [name])
        return command.done(found)

    async def free_slots(self, batch: BatchId, slots: Sequence[str]) -> list[str]:
        """Those of the slots that no call has."""
        at = self._of(batch)
        at.set_clocks()
        taken = {pair.slot for pair in at.indoubt.pairs.values() if at.indoubt.live(pair)}
        return [slot for slot in slots if slot not in taken]

    async def tool_sent(self, batch: BatchId, run: RunId, intent: str, gen: Gen, executor: str, slot: str) -> Decision:
        """The call is about to leave: `commit` licenses it, once. Answer: bound_ms."""
        command = self._begin("tool_sent", batch, run, intent_id=intent, gen=gen, executor=executor, slot=slot or None)
        at = command.batch
        if command.malformed or (not slot and undone_by(intent) is None):
            return command.refused("schema")
        bound = at.outbox.ack_bound_ms
        call = {"intent_id": intent, "gen": gen, "executor": executor}
        if not at.has_effect(run, intent) and not _is_over(at, run):
            return command.refused_as("outbox.sent", "unknown_intent", **call)
        sent = command.step(at.outbox, "sent", **call)
        if command.last.verb is Verb.DUPLICATE:
            return command.again(bound_ms=bound)
        if _is_over(at, run) and undone_by(intent) is None:
            return command.refused_instead("ended")
        if not sent:
            return command.refused()
        plane = self.plane.value
        key = f"{plane}:{run}:{intent}"
        admission = at.plane.in_flight.get(key)
        if admission is None:
            admission = executor
            if not command.step(at.plane, "admit", admission=admission, key=key, plane=plane):
                return command.refused()
        if undone_by(intent) is None:
            pair = {"run": run, "key": intent, "epoch": at.life(run).conversation, "lease_id": executor}
            if not command.step(at.indoubt, "reserve", slot=slot, ttl_ms=bound, **pair):
                return command.refused()
            if not command.step(at.indoubt, "prepare", **pair):
                return command.refused()
        at.tools[intent].admission = admission
        return command.done(Answer(Verb.COMMIT, None, {"bound_ms": bound}))

    async def tool_complete(
        self, batch: BatchId, run: RunId, intent: str, gen: Gen, executor: str, outcome: Outcome
    ) -> Decision:
        """Say what the tool said, whatever became of its run. Answer: state."""
        digest = hashlib.sha256(outcome.observation.encode("utf-8", "surrogatepass")).hexdigest()
        command = self._begin(
            "tool_complete", batch, run, intent_id=intent, gen=gen, executor=executor, ok=outcome.ok,
            echo=outcome.echo, digest=digest,
        )  # fmt: skip
        at = command.batch
        if command.malformed or not outcome.observation:
            return command.refused("schema")
        said = {
            "intent_id": intent, "gen": gen, "executor": executor, "ok": outcome.ok, "observation": outcome.observation,
            "echo": outcome.echo,
        }  # fmt: skip
        if not at.has_effect(run, intent):
            return command.refused_as("outbox.complete", "unknown_intent", **said)
        before = at.outbox.intents[intent].state
        granted = command.step(at.outbox, "complete", **said)
        answer = command.last
        if answer.verb is Verb.DUPLICATE:
            return command.again(**answer.fields)
        if not granted:
            return command.refused()
        left = before is State.AWAITING_ACK or outcome.ok  # a success of what never left is found out here
        if left and not self._settled(command, run, intent, executor, digest, ok=outcome.ok):
            return command.refused()
        follow(command, [intent])
        return command.done(answer)

    def _settled(self, command: Command, run: RunId, intent: str, executor: str, digest: str, *, ok: bool) -> bool:
        """The pair is decided, the key written, and what the call held is free."""
        at, plane = command.batch, self.plane.value
        if undone_by(intent) is None:
            pair = {"run": run, "key": intent, "epoch": at.life(run).conversation, "lease_id": executor}
            if not command.step(at.indoubt, "bind", **pair, result=digest):
                return False
        admission = at.tools[intent].admission or executor
        row = {"admission": admission, "key": f"{plane}:{run}:{intent}", "plane": plane, "body": digest}
        if ok and not command.step(at.plane, "write", **row):
            return False
        return command.step(at.plane, "release", admission=admission)


def args_text(args: object) -> str:
    """A tool's arguments as canonical JSON text."""
    return json.dumps(args, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _licence(at: MemoryBatch, name: str) -> dict[str, object]:
    intent, undone = at.outbox.intents[name], undone_by(name)
    told = {"intent": name, "gen": intent.gen, "tool": intent.tool, "args": args_text(intent.args)}
    return told if undone is None else {**told, "undo": undone}


def _is_over(at: MemoryBatch, run: RunId) -> bool:
    """An effect of an ended run is not begun any more; a sealed one has joined all it had."""
    return at.state(run) not in (RunState.RUNNING, RunState.QUEUED)


def give_up(command: Command, name: str, executor: str, why: str) -> bool:
    """What never left ends as failed: nothing was done, and `why` is its observation. False when fence 2 refuses.

    Whoever gives it up does so as its executor: fence 2 knows no other way.
    """
    outbox = command.batch.outbox
    intent = outbox.intents[name]
    if intent.state is State.EXECUTING:
        command.step(outbox, "recover", intent_id=name)
    whose = {"intent_id": name, "gen": intent.gen, "executor": executor}
    return command.step(outbox, "claim", **whose) and command.step(
        outbox, "complete", **whose, ok=False, observation=why
    )


def follow(command: Command, names: Iterable[str]) -> None:
    """A message for each effect that waits, none for one that does not; and the same for its other half."""
    at = command.batch
    for name in names:
        intent = undone_by(name) or name
        for one in (intent, intent + UNDO):
            effect = at.outbox.intents.get(one)
            if effect is None:
                continue
            life = at.tools.setdefault(one, ToolLife(at.tools[intent].run))
            if effect.state in _WAITING and life.entry is None:
                life.entry = command.emit(Group.TOOLS, life.run, intent=one, tool=effect.tool)
            elif effect.state not in _WAITING and life.entry is not None:
                command.acknowledge(Group.TOOLS, life.entry)
                life.entry = None
