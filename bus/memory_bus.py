"""The bus in memory: `bus.port.Bus` over the reference models, without a server.

The roles cannot tell it from the one on a server. It keeps a whole world of batches in one process, takes its clock and
its random ids from outside, and does each step at once and whole; so the very code of planner, worker and scorer can be
run on a seeded scheduler, thousands of times a minute, each time repeatably.

    world = MemoryWorld(runtime)           what survives; one for all processes of a test
    bus = MemoryBus(world, runtime)        one process's view of it

What a step must check, and in which order, is told in `lua/run/<step>.lua`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from bus.chain import next_head
from bus.envelopes import check_payload
from bus.errors import ViolationError
from bus.memory_batch import Command, Life, MemoryBatch, is_entry_id
from bus.memory_world import MemoryReader, MemoryWorld
from bus.models import Answer, Verb
from bus.models.histogram import Status
from bus.port import BatchSpec, Entry, Group, Held, Judgement, Ref, RunState
from bus.types import BatchId, ConsumerId, Decision, Digest, EntryId, LeaseId, RunId
from bus.types import Verb as BusVerb

__all__ = ["MemoryBus", "MemoryWorld"]

_AT_ONCE = 100  # as the scripts: runs admitted, events appended in one step
_SWEPT_AT_ONCE = 50  # likewise
_FREE_HAND_BACKS = 20  # as the scripts: further ones are taken for deaths


class MemoryBus(MemoryReader):
    """See the module's text."""

    def _begin(self, name: str, batch: BatchId, run: RunId | None = None, **envelope: object) -> Command:
        return Command(self._of(batch), name, run, {"plane": self.plane.value, "batch": batch, **envelope})

    # --- planner -----------------------------------------------------------------------------------------

    async def create(self, spec: BatchSpec) -> Decision:
        """Declare a batch: `commit`, `duplicate` for the same declaration, `reject batch_mismatch` for another."""
        declared = json.dumps(asdict(spec) | {"suite_path": ""}, sort_keys=True)
        incarnation = self._runtime.token()
        there = self._world.batches.get(spec.batch)
        if there is None:
            made = MemoryBatch(spec, declared, incarnation, self._world.runtime.now)
            self._world.batches[spec.batch] = made
            return self._begin("create", spec.batch).done()
        command = self._begin("create", spec.batch)
        if there.declared == declared:
            return command.again(incarnation=there.incarnation)
        return command.refused("batch_mismatch")

    async def admit(
        self,
        batch: BatchId,
        cursor: int,
        runs: Sequence[RunId],
        read: Sequence[Entry],
        consumer: ConsumerId,
        candidate: str,
        judge: str,
    ) -> Decision:
        """Admit the next runs from `cursor` on while the desk has room. Answer: admitted, cursor, why_stopped."""
        runs, command_id = runs[:_AT_ONCE], self._runtime.token()
        command = self._begin(
            "admit", batch, command_id=command_id, consumer=consumer, cursor=cursor, runs=len(runs),
            entries=len(read), candidate=candidate, judge=judge,
        )  # fmt: skip
        turned_away = self._not_next(command, cursor, runs)
        if turned_away is not None:
            return turned_away
        if not all(is_entry_id(entry.id) for entry in read):
            return command.refused("schema")
        places: dict[RunId, str] = {}
        for number, run in enumerate(runs, start=1):
            place = f"{command_id}.{number}"
            refusal = self._give_place(command, run, place, candidate, judge)
            if refusal == "bound_full" and places:
                command.go_without()
                break
            if refusal is not None:
                return command.refused("schema" if refusal == "schema" else None)
            places[run] = place
        return self._admitted(command, places, read, full=len(places) < len(runs))

    def _not_next(self, command: Command, cursor: int, runs: Sequence[RunId]) -> Decision | None:
        """What admit and abandon ask first: are these the runs that come next?"""
        at = command.batch
        if command.malformed:
            return command.refused("schema")
        if at.ended:
            return command.refused("after_close")
        if at.cursor != cursor:
            return command.again(cursor=at.cursor)
        if cursor + len(runs) > at.spec.intended or len(set(runs)) < len(runs):
            return command.refused("schema")
        return None

    def _give_place(self, command: Command, run: RunId, place: str, candidate: str, judge: str) -> str | None:
        """A place at the desk and a judge, or why there is none."""
        at = command.batch
        if run in at.lives and run not in at.judge.tokens:
            return "schema"  # a hole that was never admitted: the cursor never comes back to it
        if not command.step(at.desk, "acquire", step=run, lease=place):
            return command.last.reason
        if not command.step(at.judge, "mint", run=run, candidate=candidate, judge=judge, epoch=1):
            return command.last.reason
        return None

    def _admitted(self, command: Command, places: dict[RunId, str], read: Sequence[Entry], *, full: bool) -> Decision:
        at = command.batch
        for entry in read:  # wake-ups: any planner may take them off
            command.acknowledge(Group.PLANNER, entry.id)
        at.cursor += len(places)
        why = "bound_full" if full else "none"
        if not places:  # no decision, so no record
            return Decision(BusVerb.COMMIT, None, command.name, _admission(0, at.cursor, why))
        at.histogram.intended |= places.keys()
        for run, place in places.items():
            at.lives[run] = Life(command.emit(Group.WORKER, run), place=place)
        if at.cursor == at.spec.intended:
            command.step(at.histogram, "drain")
            why = "drained"
        return command.done(Answer(Verb.COMMIT, None, _admission(len(places), at.cursor, why)))

    async def abandon(self, batch: BatchId, cursor: int, runs: Sequence[RunId], why: str) -> Decision:
        """Name the next runs from `cursor` on holes: they were never admitted."""
        runs = runs[:_AT_ONCE]
        command = self._begin("abandon", batch, cursor=cursor, runs=len(runs), why=why)
        at = command.batch
        if not runs:
            return command.refused("schema")
        turned_away = self._not_next(command, cursor, runs)
        if turned_away is not None:
            return turned_away
        if any(run in at.lives for run in runs):
            return command.refused("schema")
        at.histogram.intended |= set(runs)
        for run in runs:
            at.lives[run] = Life(EntryId(""))
            command.make_hole(run, why, "")
            command.emit(Group.PLANNER, run)
        at.cursor += len(runs)
        if at.cursor == at.spec.intended:
            command.step(at.histogram, "drain")
        return command.done(Answer(Verb.COMMIT, None, {"abandoned": len(runs), "cursor": at.cursor}))

    async def requeue(self, batch: BatchId, group: Group, run: RunId, entry: EntryId) -> Decision:
        """Emit a run's message anew when its group no longer knows the one that its row names."""
        command = self._begin("requeue", batch, run, group=group.value, entry=entry)
        at, life = command.batch, command.batch.life(run)
        if command.malformed:
            return command.refused("schema")
        if not at.waits_for(group, run):
            return command.refused("ended")
        if life.entry != entry:
            return command.again()
        if run in at.parked or at.streams[group].knows(entry):
            return command.refused("still_known")
        command.acknowledge(group, entry)
        life.entry = command.emit(group, run)
        return command.done(Answer(Verb.COMMIT, None, {"entry": life.entry}))

    async def sweep(self, batch: BatchId, limit: int) -> Decision:
        """Give back places whose lease expired and was never released. Answer: freed."""
        desk = self._of(batch).desk
        desk.now_ms = int(self._world.runtime.now() * 1000)
        expired = [lease for lease, known in desk.leases.items() if known.expired_ms is not None and not known.gone]
        if not expired:
            return Decision(BusVerb.COMMIT, None, "run.sweep", {"freed": 0})
        expired = expired[: min(limit, _SWEPT_AT_ONCE)]
        command = self._begin("sweep", batch, leases=len(expired))
        freed = 0
        for lease in expired:
            if command.step(desk, "reclaim", lease=lease, cancelled=False):
                freed += 1
            else:
                command.go_without()
        return command.done(Answer(Verb.COMMIT, None, {"freed": freed}))

    async def rebind(self, batch: BatchId, run: RunId, epoch: int, candidate: str, judge: str) -> Decision:
        """Bind a parked run's score to another judge; emits its score message anew."""
        command_id = self._runtime.token()
        command = self._begin(
            "rebind", batch, run, epoch=epoch, candidate=candidate, judge=judge, command_id=command_id
        )
        at, life = command.batch, command.batch.life(run)
        if command.malformed:
            return command.refused("schema")
        if at.ended:
            return command.refused("after_close")
        if not at.waits_for(Group.SCORER, run):
            return command.refused("ended")
        if not command.step(at.judge, "rebind", run=run, epoch=epoch, candidate=candidate, judge=judge):
            return command.refused()
        at.parked.discard(run)
        life.scorer_lease, life.state = "", RunState.SEALED
        life.ended[command_id] = "rebind"
        self._emit_anew(command, Group.SCORER, run)
        return command.done(command.last)

    def _emit_anew(self, command: Command, group: Group, run: RunId) -> None:
        life = command.batch.lives[run]
        command.acknowledge(group, life.entry)
        life.entry = command.emit(group, run)

    async def close(self, batch: BatchId, snapshot_id: str, accepted: int) -> Decision:
        """Close the histogram over the snapshot computed from the rows.

        The model computes the snapshot from its own: raises `ViolationError` when that has another name.
        """
        command = self._begin("close", batch, snapshot_id=snapshot_id, accepted=accepted)
        histogram = command.batch.histogram
        if command.malformed:
            return command.refused("schema")
        if histogram.status is Status.CLOSED:
            return command.again(snapshot_id=histogram.snapshot_id, accepted=len(histogram.rows))
        if not command.step(histogram, "close"):
            return command.refused()
        if accepted != len(histogram.rows):  # its rows were read while the last run was still ending
            command.note("histogram.close", Answer(Verb.IN_DOUBT, "in_flight"))
            return command.refused()
        if histogram.snapshot_id != snapshot_id:
            raise ViolationError(
                f"batch {batch} was closed as {snapshot_id}, by its rows it is {histogram.snapshot_id}"
            )
        return command.done(command.last)

    # --- worker ------------------------------------------------------------------------------------------

    async def claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Mint the one lease of a run. Answer: gen, attempts, head, length, unresolved."""
        run = entry.run
        command = self._begin("claim", entry.batch, run, lease_id=lease_id, entry=entry.id, consumer=consumer)
        at, life = command.batch, command.batch.life(run)
        if command.malformed:
            return command.refused("schema")
        live = at.chain(run).live
        if life.state is RunState.RUNNING and live is not None and live.lease_id == lease_id:
            standing = at.transcript.lease(run=run, lease_id=lease_id).fields
            return command.again(attempts=life.attempts, **standing)
        turned_away = self._not_claimable(command, Group.WORKER, entry, lease_id, consumer)
        if turned_away is not None:
            return turned_away
        if life.attempts >= at.spec.max_deliveries:
            return self._give_up(command, Group.WORKER, entry, "poison", "every worker that held it went silent")
        if not command.step(at.transcript, "lease", run=run, lease_id=lease_id):
            return command.refused()
        life.attempts += 1
        life.consumer, life.state = consumer, RunState.RUNNING
        return command.done(Answer(Verb.COMMIT, None, {"attempts": life.attempts, **command.last.fields}))

    def _not_claimable(
        self, command: Command, group: Group, entry: Entry, lease_id: LeaseId, consumer: ConsumerId
    ) -> Decision | None:
        """What both claims ask first. An entry that nobody will ever need is acknowledged, but by its owner only."""
        at = command.batch
        if lease_id in at.transcript.granted:
            return command.refused("lease_reused")
        if not command.owns(group, entry.id, consumer):
            return command.refused("not_owner")
        if not at.waits_for(group, entry.run) or at.ended:
            command.acknowledge(group, entry.id)
            return command.refused("ended")
        if at.life(entry.run).entry != entry.id:
            command.acknowledge(group, entry.id)
            return command.refused("duplicate_entry")
        return None

    def _give_up(self, command: Command, group: Group, entry: Entry, why: str, detail: str) -> Decision:
        """The run was claimed as often as it may be, and nobody brought it to an end."""
        if not command.make_hole(entry.run, why, detail):
            return command.refused()
        command.emit(Group.PLANNER, entry.run)
        command.acknowledge(group, entry.id)
        return command.done(Answer(Verb.REJECT, why))

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
        is_live = at.holder_is_live if group is Group.WORKER else at.scorer_is_live
        answers: dict[Ref, Decision] = {}
        stale = [ref for ref in leases if not is_live(ref.run, ref.lease_id, ref.gen)]
        for ref in leases:
            if ref in stale:
                token = {"run": ref.run, "lease_id": ref.lease_id, "gen": ref.gen}
                command.note(command.name, Answer(Verb.REJECT, "stale_lease"), token)
                answers[ref] = Decision(BusVerb.REJECT, "stale_lease", command.name)
            else:
                stream.renew(at.life(ref.run).entry, consumer)
                answers[ref] = Decision(BusVerb.COMMIT, None, command.name)
        for entry in entries:
            if stream.owns(entry, consumer):
                stream.renew(entry, consumer)
        if stale:  # a beat that kept everything alive is no decision, and is not recorded
            at.refused["stale_lease"] += len(stale)
            command.done()
        return answers

    async def append(self, ref: Ref, parent: Digest, seq: int, payloads: Sequence[str]) -> Decision:
        """Add events to the transcript. Answer: head, length."""
        for payload in payloads:
            check_payload(payload)
        command = self._begin(
            "append", ref.batch, ref.run, lease_id=ref.lease_id, gen=ref.gen, parent=parent, seq=seq,
            events=len(payloads),
        )  # fmt: skip
        at, life, head, written = command.batch, command.batch.life(ref.run), parent, 0
        if command.malformed or len(payloads) > _AT_ONCE or not all(payloads):
            return command.refused("schema")
        holder = {"run": ref.run, "lease_id": ref.lease_id, "gen": ref.gen}
        for number, payload in enumerate(payloads):
            event = {"parent": head, "seq": seq + number, "payload": payload}
            if not command.step(at.transcript, "append", **holder, **event):
                return command.refused()
            written += command.last.verb is Verb.COMMIT
            head = next_head(head, payload)
        life.writers += [ref.gen] * written
        standing = {"head": at.chain(ref.run).head, "length": at.chain(ref.run).length}
        return command.done(Answer(Verb.COMMIT, None, standing)) if written else command.again(**standing)

    async def seal(self, ref: Ref, parent: Digest, seq: int, payload: str, tree_hash: str, artifact: str) -> Decision:
        """Append the answer, seal, emit the score message, acknowledge the run's entry. Answer: head."""
        check_payload(payload)
        head = next_head(parent, payload)
        command = self._begin(
            "seal", ref.batch, ref.run, lease_id=ref.lease_id, gen=ref.gen, parent=parent, seq=seq, head=head,
            tree_hash=tree_hash or None, artifact=artifact or None,
        )  # fmt: skip
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not payload:
            return command.refused("schema")
        if life.ended.get(ref.lease_id) == "seal":
            return command.again(head=at.chain(ref.run).head)
        holder = {"run": ref.run, "lease_id": ref.lease_id, "gen": ref.gen}
        if not command.step(at.transcript, "append", **holder, parent=parent, seq=seq, payload=payload):
            return command.refused()
        written = command.last.verb is Verb.COMMIT
        if not command.step(at.transcript, "seal", **holder, head=head):
            return command.refused()
        life.writers += [ref.gen] * written
        command.acknowledge(Group.WORKER, life.entry)
        life.entry = command.emit(Group.SCORER, ref.run)
        life.ended[ref.lease_id] = "seal"
        life.tree, life.artifact, life.state = tree_hash, artifact, RunState.SEALED
        return command.done(Answer(Verb.COMMIT, None, {"head": head}))

    async def give_back(self, ref: Ref) -> Decision:
        """Hand a run back at once (`yield`): fence the lease, emit a new entry, acknowledge the old."""
        command = self._begin("yield", ref.batch, ref.run, lease_id=ref.lease_id, gen=ref.gen)
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed:
            return command.refused("schema")
        if life.ended.get(ref.lease_id) == "yield":
            return command.again()
        if not at.holder_is_live(ref.run, ref.lease_id, ref.gen):
            return command.refused("stale_lease")
        command.step(at.transcript, "fence", run=ref.run, gen=ref.gen)
        life.hand_backs += 1
        if life.hand_backs <= _FREE_HAND_BACKS:
            self._emit_anew(command, Group.WORKER, ref.run)
            life.attempts -= 1
        life.ended[ref.lease_id] = "yield"
        life.state = RunState.QUEUED
        return command.done()

    async def hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End the run as a named hole."""
        at = self._of(ref.batch)
        meant = at.waits_for(Group.WORKER, ref.run) and at.chain(ref.run).gen == ref.gen
        entitled = at.holder_is_live(ref.run, ref.lease_id, ref.gen) if ref.lease_id else meant
        return self._end_as_hole("hole", Group.WORKER, ref, why, detail, entitled=entitled)

    def _end_as_hole(self, name: str, group: Group, ref: Ref, why: str, detail: str, *, entitled: bool) -> Decision:
        """The holder names its lease; an operator has none, and names the generation that he means to end."""
        who = ref.lease_id or "operator"
        command = self._begin(name, ref.batch, ref.run, lease_id=ref.lease_id or None, gen=ref.gen, why=why)
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed:
            return command.refused("schema")
        if life.ended.get(who) == name and at.histogram.holes.get(ref.run) == why:
            return command.again()
        if not entitled:
            return command.refused("stale_lease")
        if not command.make_hole(ref.run, why, detail[:2_000]):
            return command.refused()
        life.ended[who] = name
        at.parked.discard(ref.run)
        command.emit(Group.PLANNER, ref.run)
        command.acknowledge(group, life.entry)
        return command.done()

    # --- scorer ------------------------------------------------------------------------------------------

    async def score_claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Fence the scoring epoch. Answer: epoch, attempts, head, tree_hash, artifact and the bind token."""
        run = entry.run
        command = self._begin("score_claim", entry.batch, run, lease_id=lease_id, entry=entry.id, consumer=consumer)
        at, life = command.batch, command.batch.life(run)
        if command.malformed:
            return command.refused("schema")
        if life.state is RunState.SCORING and life.scorer_lease == lease_id:
            return command.again(**_licence(at, run))
        turned_away = self._not_claimable(command, Group.SCORER, entry, lease_id, consumer)
        if turned_away is not None:
            return turned_away
        if life.score_attempts >= at.spec.max_deliveries:
            return self._give_up(command, Group.SCORER, entry, "judge_failed", "every scorer that held it went silent")
        if not command.step(at.histogram, "fence", run=run, epoch=at.epoch(run) + 1, digest=at.chain(run).head):
            return command.refused()
        at.transcript.granted[lease_id] = run
        life.scorer_lease, life.consumer = lease_id, consumer
        life.score_attempts += 1
        life.state = RunState.SCORING
        return command.done(Answer(Verb.COMMIT, None, _licence(at, run)))

    async def score(self, ref: Ref, judgement: Judgement) -> Decision:
        """Sign the score. `ref.gen` is the scoring epoch."""
        signed = {
            "observed_candidate": judgement.candidate or None,
            "observed_judge": judgement.judge or None,
            "score_digest": judgement.score_digest,
        }
        command = self._begin(
            "score", ref.batch, ref.run, lease_id=ref.lease_id, gen=ref.gen, head=judgement.head,
            judge_epoch=judgement.judge_epoch, bin=judgement.bin, value=judgement.value, **signed,
        )  # fmt: skip
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed:
            return command.refused("schema")
        if life.ended.get(ref.lease_id) == "score":
            return command.again()
        if not at.scorer_is_live(ref.run, ref.lease_id, ref.gen):
            return command.refused("stale_lease")
        if not (judgement.candidate and judgement.judge):
            command.note("judge.commit", Answer(Verb.REJECT, "unbound"), {"epoch": judgement.judge_epoch})
            return command.refused()
        if not command.step(at.judge, "commit", run=ref.run, epoch=judgement.judge_epoch, **signed):
            mismatch = command.last
            if (mismatch.reason or "").endswith("_mismatch") and ref.run not in at.judge.rows:
                return self._mismatched(command, ref, mismatch)
            return command.refused()
        row = {"digest": judgement.head, "epoch": ref.gen, "bin": judgement.bin, "value": judgement.value}
        place = at.desk.leases[life.place]
        gen = 0 if place.gone else place.gen
        granted = (
            command.step(at.histogram, "score", run=ref.run, **row)
            and command.step(at.desk, "apply", lease=life.place, gen=gen, digest=judgement.head)
            and command.step(at.desk, "release", lease=life.place)
        )
        if not granted:
            return command.refused()
        life.scorer_lease, life.state = "", RunState.SCORED
        life.ended[ref.lease_id] = "score"
        command.emit(Group.PLANNER, ref.run)
        command.acknowledge(Group.SCORER, life.entry)
        return command.done()

    def _mismatched(self, command: Command, ref: Ref, mismatch: Answer) -> Decision:
        """Another judge answered than was bound: a hole, or parked until a rebind, as the suite's policy says."""
        at, life = command.batch, command.batch.life(ref.run)
        reason = mismatch.reason or ""
        if mismatch.refused:
            at.refused[reason] += 1
        if mismatch.verb is Verb.REJECT:
            command.make_hole(ref.run, reason, f"another {reason.partition('_')[0]} answered than was bound")
            life.ended[ref.lease_id] = "score_hole"
            command.emit(Group.PLANNER, ref.run)
        else:
            life.scorer_lease, life.state = "", RunState.SEALED
            at.parked.add(ref.run)
        command.acknowledge(Group.SCORER, life.entry)
        command.done()
        return Decision(BusVerb(mismatch.verb.value), reason, "judge.commit", dict(mismatch.fields))

    async def score_give_back(self, ref: Ref) -> Decision:
        """Hand a score back at once."""
        command = self._begin("score_yield", ref.batch, ref.run, lease_id=ref.lease_id, gen=ref.gen)
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed:
            return command.refused("schema")
        if life.ended.get(ref.lease_id) == "score_yield":
            return command.again()
        if not at.scorer_is_live(ref.run, ref.lease_id, ref.gen):
            return command.refused("stale_lease")
        life.score_hand_backs += 1
        if life.score_hand_backs <= _FREE_HAND_BACKS:
            self._emit_anew(command, Group.SCORER, ref.run)
            life.score_attempts -= 1
        life.ended[ref.lease_id] = "score_yield"
        life.scorer_lease, life.state = "", RunState.SEALED
        return command.done()

    async def score_hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End a sealed run as a named hole."""
        at = self._of(ref.batch)
        meant = at.waits_for(Group.SCORER, ref.run) and at.epoch(ref.run) == ref.gen
        entitled = at.scorer_is_live(ref.run, ref.lease_id, ref.gen) if ref.lease_id else meant
        return self._end_as_hole("score_hole", Group.SCORER, ref, why, detail, entitled=entitled)

    # --- life --------------------------------------------------------------------------------------------

    async def dead_letter(self, entry: Entry, consumer: ConsumerId, why: str) -> None:
        """Copy an entry that cannot be read to the dead letters and acknowledge it, by its owner only."""
        command = self._begin("bury", entry.batch, group=entry.group.value, entry=entry.id, consumer=consumer, why=why)
        if command.malformed:
            command.refused("schema")
        elif not command.owns(entry.group, entry.id, consumer):
            command.refused("not_owner")
        else:
            content = json.dumps(dict(entry.fields))
            command.batch.dead.append({"reason": why, "entry": entry.id, "content": content})
            command.acknowledge(entry.group, entry.id)
            command.done()

    async def aclose(self) -> None:
        """Nothing to close."""


def _admission(count: int, cursor: int, why: str) -> dict[str, object]:
    return {"admitted": count, "cursor": cursor, "why_stopped": why}


def _licence(at: MemoryBatch, run: RunId) -> dict[str, object]:
    life, token = at.life(run), at.judge.tokens[run]
    return {
        "epoch": at.epoch(run),
        "attempts": life.score_attempts,
        "head": at.chain(run).head,
        "tree_hash": life.tree,
        "artifact": life.artifact,
        "candidate": token.candidate,
        "judge": token.judge,
        "judge_epoch": token.epoch,
    }
