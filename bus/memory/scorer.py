"""The scorer's steps in memory: a sealed run is claimed, judged under its binding, and signed once."""

from __future__ import annotations

from bus.memory.batch import VERDICT_SCHEMA, MemoryBatch
from bus.memory.command import Command
from bus.memory.hand_backs import is_machine
from bus.memory.steps import EndingSteps, emit_anew, leave, make_hole, settle
from bus.models import Answer, Verb
from bus.port import Entry, Group, Judgement, Ref, RunState
from bus.port_calls import JUDGE_DESK
from bus.types import ConsumerId, Decision, LeaseId, RunId
from bus.types import Verb as BusVerb

__all__ = ["ScorerSteps"]


class ScorerSteps(EndingSteps):
    """See the module's text."""

    async def score_claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Fence the scoring epoch. Answer: epoch, attempts, head, tree_hash, artifact and the bind token."""
        run = entry.run
        command = self._begin("score_claim", entry.batch, run, lease_id=lease_id, entry=entry.id, consumer=consumer)
        at, life = command.batch, command.batch.life(run)
        if command.malformed:
            return command.refused("schema")
        voided = life.scorer_lease != "" and at.epoch(run) <= at.floor  # by a restart: that is nobody's failure
        if life.state is RunState.SCORING and life.scorer_lease == lease_id and not voided:
            return command.again(**_licence(at, run))
        turned_away = self._not_claimable(command, Group.SCORER, entry, lease_id, consumer)
        if turned_away is not None:
            return turned_away
        if life.score_attempts >= at.spec.max_deliveries:
            return self._give_up(command, Group.SCORER, entry, "judge_failed", "every scorer that held it went silent")
        epoch = max(at.epoch(run), at.floor) + 1
        if not command.step(at.histogram, "fence", run=run, epoch=epoch, digest=at.chain(run).head):
            return command.refused()
        settle(command, life, JUDGE_DESK)
        at.transcript.granted[lease_id] = run
        life.scorer_lease, life.consumer = lease_id, consumer
        life.score_attempts += not voided
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
            tree_hash=judgement.tree_hash or None, judge_epoch=judgement.judge_epoch, bin=judgement.bin,
            value=judgement.value, detail=judgement.detail[:2_000] or None, **signed,
        )  # fmt: skip
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed:
            return command.refused("schema")
        if life.ended.get(ref.lease_id) == "score":
            return command.again()
        if not at.scorer_is_live(ref.run, ref.lease_id, ref.gen):
            return command.refused("stale_lease")
        settle(command, life, JUDGE_DESK)
        if not (judgement.candidate and judgement.judge):
            command.note("judge.commit", Answer(Verb.REJECT, "unbound"), {"epoch": judgement.judge_epoch})
            return command.refused()
        if not command.step(at.judge, "commit", run=ref.run, epoch=judgement.judge_epoch, **signed):
            mismatch = command.last
            if (mismatch.reason or "").endswith("_mismatch") and ref.run not in at.judge.rows:
                return self._mismatched(command, ref, mismatch, judgement.detail[:2_000])
            return command.refused()
        if life.tree and not self._attached(command, ref, judgement):
            return command.refused()
        row = {"digest": judgement.head, "epoch": ref.gen, "bin": judgement.bin, "value": judgement.value}
        place = at.desk.leases[life.place]
        gen = 0 if place.gone else place.gen
        granted = (
            command.step(at.histogram, "score", run=ref.run, **row)
            and command.step(at.desk, "apply", lease=life.place, gen=gen, digest=judgement.head)
            and leave(command, ref.run)
        )
        if not granted:
            return command.refused()
        life.scorer_lease, life.state = "", RunState.SCORED
        life.ended[ref.lease_id] = "score"
        command.emit(Group.PLANNER, ref.run)
        command.acknowledge(Group.SCORER, life.entry)
        return command.done()

    def _attached(self, command: Command, ref: Ref, judgement: Judgement) -> bool:
        """The scorer unpacked and hashed the tree itself: what it judged must be what was sealed."""
        at = command.batch
        verdict: dict[str, object] = {"step": ref.run, "gen": at.life(ref.run).gen, "verdict": judgement.bin}
        if not judgement.tree_hash:
            command.note("workspace.attach", Answer(Verb.REJECT, "schema"), {**verdict, "schema": VERDICT_SCHEMA})
            return False
        return command.step(at.workspace, "attach", **verdict, tree_hash=judgement.tree_hash, schema=VERDICT_SCHEMA)

    def _mismatched(self, command: Command, ref: Ref, mismatch: Answer, detail: str) -> Decision:
        """Another judge answered than was bound: a hole, or parked until a rebind, as the suite's policy says."""
        at, life = command.batch, command.batch.life(ref.run)
        reason = mismatch.reason or ""
        if mismatch.refused:
            at.refused[reason] += 1
        why = detail or f"another {reason.partition('_')[0]} answered than was bound"
        if mismatch.verb is Verb.REJECT:
            make_hole(command, ref.run, reason, why)
            life.ended[ref.lease_id] = "score_hole"
            command.emit(Group.PLANNER, ref.run)
        else:
            life.scorer_lease, life.state, life.detail = "", RunState.SEALED, why
            at.parked.add(ref.run)
        command.acknowledge(Group.SCORER, life.entry)
        command.done()
        return Decision(BusVerb(mismatch.verb.value), reason, "judge.commit", dict(mismatch.fields))

    async def score_give_back(self, ref: Ref, machine: str = "", *, seen: bool = False) -> Decision:
        """Hand a score back at once."""
        command = self._begin_hand_back("score_yield", ref, machine, seen=seen)
        at, life = command.batch, command.batch.life(ref.run)
        if command.malformed or not is_machine(machine):
            return command.refused("schema")
        if life.ended.get(ref.lease_id) == "score_yield":
            return command.again()
        if not at.scorer_is_live(ref.run, ref.lease_id, ref.gen):
            return command.refused("stale_lease")
        if machine and not life.score_hand_backs.noted(machine, alone=at.alone(RunState.SCORING), seen=seen):
            return command.refused("its_own_doing")
        settle(command, life, JUDGE_DESK)
        if life.score_hand_backs.is_free(machine):
            emit_anew(command, Group.SCORER, ref.run)
            life.score_attempts -= 1
        life.ended[ref.lease_id] = "score_yield"
        life.scorer_lease, life.state = "", RunState.SEALED
        return command.done()

    async def score_hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End a sealed run as a named hole."""

        def entitled(at: MemoryBatch) -> bool:
            if ref.lease_id:
                return at.scorer_is_live(ref.run, ref.lease_id, ref.gen)
            return at.waits_for(Group.SCORER, ref.run) and at.epoch(ref.run) == ref.gen

        return self._end_as_hole("score_hole", Group.SCORER, ref, why, detail, entitled)


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
