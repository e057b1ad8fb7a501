"""The bus in memory: `bus.port.Bus` over the reference models, without a server.

The roles cannot tell it from the one on a server. It keeps a whole world of batches in one process, takes its clock and
its random ids from outside, and does each step at once and whole; so the very code of planner, worker and scorer can be
run on a seeded scheduler, thousands of times a minute, each time repeatably.

    world = MemoryWorld(runtime)           what survives; one for all processes of a test
    bus = MemoryBus(world, runtime)        one process's view of it

This module has the steps of a run's holder; the others are in `bus.memory.planner`, `bus.memory.scorer`,
`bus.memory.calls` and `bus.memory.tools`. What a step must check, and in which order, is told in `lua/run/<step>.lua`.
"""

from __future__ import annotations

from collections.abc import Sequence

from bus.chain import next_head
from bus.envelopes import check_payload
from bus.memory.adopt import AdoptSteps
from bus.memory.batch import MemoryBatch
from bus.memory.calls import CallSteps
from bus.memory.command import Command, is_entry_id
from bus.memory.hand_backs import is_machine
from bus.memory.restart import above_the_floor
from bus.memory.scorer import ScorerSteps
from bus.memory.steps import (
    emit_anew,
    fence_holder,
    join_receipts,
    leave_workspace,
    not_on_its_chain,
    on_chain,
    result_key,
    settle,
)
from bus.memory.tools import ToolSteps
from bus.memory.world import MemoryWorld
from bus.models import Answer, Verb
from bus.models.join import State as Window
from bus.port import Entry, Group, Held, Receipt, Ref, RunState
from bus.port_calls import MODEL_DESK
from bus.types import BatchId, ConsumerId, Decision, Digest, EntryId, LeaseId, RunId
from bus.types import Verb as BusVerb

__all__ = ["MemoryBus", "MemoryWorld"]

_AT_ONCE = 100  # as the scripts: events appended in one step


class MemoryBus(AdoptSteps, CallSteps, ToolSteps, ScorerSteps):
    """See the module's text."""

    async def claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Mint the one lease of a run. Answer: see `bus.port`."""
        run = entry.run
        command = self._begin("claim", entry.batch, run, lease_id=lease_id, entry=entry.id, consumer=consumer)
        at, life = command.batch, command.batch.life(run)
        if command.malformed:
            return command.refused("schema")
        voided = life.lease != "" and life.gen <= at.floor  # by a restart: that is nobody's failure
        if life.state is RunState.RUNNING and life.lease == lease_id and not voided:
            return command.again(**_licence(at, run))
        turned_away = self._not_claimable(command, Group.WORKER, entry, lease_id, consumer)
        if turned_away is not None:
            return turned_away
        if life.attempts >= at.spec.max_deliveries:
            return self._give_up(command, Group.WORKER, entry, "poison", "every worker that held it went silent")
        settle(command, life, MODEL_DESK)
        above_the_floor(at, run)
        if at.has_calls and not command.step(at.completion, "lease", run=run, lease_id=lease_id):
            at.refused["retries_exhausted"] += 1
            why = command.last.reason or ""
            return self._give_up(command, Group.WORKER, entry, why, "its compute budget is used up")
        if not command.step(at.transcript, "lease", run=at.chain_name(run), lease_id=lease_id):
            return command.refused()
        life.gen = at.chain(run).gen
        if at.has_disks:  # nothing of a predecessor's disk is here: no write of it is proved
            command.step(at.sandbox, "acquire", workspace=run, known_index=0, command=lease_id)
            life.epoch = at.sandbox.places[run].epoch
        life.lease = lease_id
        life.attempts += not voided
        life.consumer, life.state = consumer, RunState.RUNNING
        return command.done(Answer(Verb.COMMIT, None, _licence(at, run)))

    async def heartbeat(self, group: Group, consumer: ConsumerId, held: Held) -> list[Decision]:
        """Keep what is held alive; one decision a lease, in the order of `held.leases`."""
        answers: dict[Ref, Decision] = {}
        for batch in sorted({ref.batch for ref in held.leases} | {entry.batch for entry in held.entries}):
            leases = [ref for ref in held.leases if ref.batch == batch]
            entries = [entry.id for entry in held.entries if entry.batch == batch]
            answers |= self._beat(group, consumer, batch, leases, entries)
        return [answers[ref] for ref in held.leases]

    def _beat(
        self,
        group: Group,
        consumer: ConsumerId,
        batch: BatchId,
        leases: Sequence[Ref],
        entries: Sequence[EntryId],
    ) -> dict[Ref, Decision]:
        command = self._begin(
            "heartbeat", batch, group=group.value, consumer=consumer, leases=len(leases), entries=len(entries)
        )
        at, stream = command.batch, command.batch.streams[group]
        if command.malformed or not all(map(is_entry_id, entries)):
            return dict.fromkeys(leases, command.refused("schema"))
        answers: dict[Ref, Decision] = {}
        for ref in leases:
            stale = self._stale(command, group, ref)
            if stale is None:
                stream.renew(at.life(ref.run).entry, consumer)
                answers[ref] = Decision(BusVerb.COMMIT, None, command.name)
            else:
                answers[ref] = stale
        for entry in entries:
            if stream.owns(entry, consumer):
                stream.renew(entry, consumer)
        refused = [decision for decision in answers.values() if decision.refused]
        if refused:  # a beat that kept everything alive is no decision, and is not recorded
            at.refused.update(decision.reason or "" for decision in refused)
            command.done()
        return answers

    def _stale(self, command: Command, group: Group, ref: Ref) -> Decision | None:
        """Why a lease cannot be kept alive: it is not the live one, or its workspace was silent for too long."""
        at = command.batch
        is_live = at.holder_is_live if group is Group.WORKER else at.scorer_is_live
        if not is_live(ref.run, ref.lease_id, ref.gen):
            token = {"run": ref.run, "lease_id": ref.lease_id, "gen": ref.gen}
            command.note(command.name, Answer(Verb.REJECT, "stale_lease"), token)
            return Decision(BusVerb.REJECT, "stale_lease", command.name)
        if group is Group.WORKER and at.has_disks:
            if not command.step(at.sandbox, "heartbeat", workspace=ref.run, epoch=ref.epoch):
                return Decision(BusVerb.REJECT, command.last.reason, "sandbox.heartbeat")
            command.go_without()
        return None

    async def append(
        self, ref: Ref, parent: Digest, seq: int, payloads: Sequence[str], receipts: Sequence[Receipt] = ()
    ) -> Decision:
        """Add events to the transcript, and join the writes that they tell of. Answer: head, length."""
        for payload in payloads:
            check_payload(payload)
        command = self._held(
            "append", ref, epoch=ref.epoch, parent=parent, seq=seq, events=len(payloads), receipts=len(receipts)
        )
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or len(payloads) > _AT_ONCE or not all(payloads):
            return command.refused("schema")
        if ref.conversation != life.conversation:
            return command.refused("run_mismatch")
        holds = at.holder_is_live(ref.run, ref.lease_id, ref.gen)
        if holds and not join_receipts(command, ref, receipts):
            return command.refused()
        head, written = parent, 0
        for number, payload in enumerate(payloads):
            event = {"parent": head, "seq": seq + number, "payload": payload}
            if not command.step(at.transcript, "append", **on_chain(at, ref), **event):
                return command.refused()
            written += command.last.verb is Verb.COMMIT
            head = next_head(head, payload)
        life.writers.setdefault(life.conversation, []).extend([ref.gen] * written)
        standing = {"head": at.chain(ref.run).head, "length": at.chain(ref.run).length}
        return command.done(Answer(Verb.COMMIT, None, standing)) if written else command.again(**standing)

    async def seal(self, ref: Ref, parent: Digest, seq: int, payload: str, tree_hash: str, artifact: str) -> Decision:
        """Append the answer, seal, emit the score message, acknowledge the run's entry. Answer: head."""
        check_payload(payload)
        head = next_head(parent, payload)
        command = self._held(
            "seal", ref, parent=parent, seq=seq, head=head, tree_hash=tree_hash or None, artifact=artifact or None
        )
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not payload:
            return command.refused("schema")
        if life.ended.get(ref.lease_id) == "seal":
            return command.again(head=at.chain(ref.run).head)
        if not_yet := not_on_its_chain(command, ref):
            return not_yet
        token = on_chain(at, ref)
        if not command.step(at.transcript, "append", **token, parent=parent, seq=seq, payload=payload):
            return command.refused()
        written = command.last.verb is Verb.COMMIT
        if any(at.join.cases[step].state in (Window.OPEN, Window.JOINED) for step in life.fan_outs):
            return command.doubted("in_flight")
        if any(at.desks[MODEL_DESK].live.get(call.step) == lease for lease, call in life.calls.items()):
            return command.doubted("unresolved_intent")
        if not command.step(at.transcript, "seal", **token, head=head):
            return command.refused()
        if tree_hash and not command.step(at.workspace, "record", step=ref.run, gen=ref.gen, tree_hash=tree_hash):
            return command.refused()
        plane = self.plane.value
        place = {"admission": life.place, "key": result_key(plane, ref.run), "plane": plane}
        if not command.step(at.plane, "write", **place, body=head):
            return command.refused()
        leave_workspace(command, ref.run)
        life.writers.setdefault(life.conversation, []).extend([ref.gen] * written)
        command.acknowledge(Group.WORKER, life.entry)
        life.entry = command.emit(Group.SCORER, ref.run)
        life.ended[ref.lease_id] = "seal"
        life.lease = ""
        life.tree, life.artifact, life.state = tree_hash, artifact, RunState.SEALED
        return command.done(Answer(Verb.COMMIT, None, {"head": head}))

    async def give_back(self, ref: Ref, machine: str = "", *, seen: bool = False) -> Decision:
        """Hand a run back at once (`yield`): fence the lease, emit a new entry, acknowledge the old."""
        command = self._begin_hand_back("yield", ref, machine, seen=seen)
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not is_machine(machine):
            return command.refused("schema")
        if life.ended.get(ref.lease_id) == "yield":
            return command.again()
        if not at.holder_is_live(ref.run, ref.lease_id, ref.gen):
            return command.refused("stale_lease")
        if machine and not life.hand_backs.noted(machine, alone=at.alone(RunState.RUNNING), seen=seen):
            return command.refused("its_own_doing")
        settle(command, life, MODEL_DESK)
        fence_holder(command, ref.run)
        if life.hand_backs.is_free(machine):
            emit_anew(command, Group.WORKER, ref.run)
            life.attempts -= 1
        life.ended[ref.lease_id] = "yield"
        life.state = RunState.QUEUED
        return command.done()

    async def hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End the run as a named hole."""

        def entitled(at: MemoryBatch) -> bool:
            if ref.lease_id:
                return at.holder_is_live(ref.run, ref.lease_id, ref.gen)
            return at.waits_for(Group.WORKER, ref.run) and at.life(ref.run).gen == ref.gen

        return self._end_as_hole("hole", Group.WORKER, ref, why, detail, entitled)

    async def aclose(self) -> None:
        """Nothing to close."""


def _licence(at: MemoryBatch, run: RunId) -> dict[str, object]:
    """What a worker is told with its lease."""
    life, chain, name = at.life(run), at.chain(run), at.chain_name(run)
    wrote = any(write.step.startswith(f"{name}.") for write in at.sandbox.writes.values())
    return {
        "gen": life.gen,
        "attempts": life.attempts,
        "conversation": life.conversation,
        "turning": life.turning,
        "head": chain.head,
        "length": chain.length,
        "unresolved": chain.unresolved,
        "windows": [step for step in life.fan_outs if at.join.cases[step].state is not Window.COMMITTED],
        "epoch": life.epoch,
        "wrote": at.has_disks and wrote,
    }
