"""The planner's steps in memory: batches are declared, runs admitted, places swept, the histogram closed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from bus.errors import ViolationError
from bus.memory.batch import RUNS_DESK, Life, MemoryBatch
from bus.memory.command import Command, is_entry_id
from bus.memory.steps import MemorySteps, emit_anew, make_hole, result_key, settle, settle_attempt
from bus.models import Answer, Verb
from bus.models.histogram import Status
from bus.models.ledger import AttemptId, State
from bus.port import BatchSpec, Entry, Group, NextRuns, RunState
from bus.port_calls import JUDGE_DESK, ExpiredCall
from bus.types import BatchId, ConsumerId, Decision, EntryId, RunId
from bus.types import Verb as BusVerb

__all__ = ["PlannerSteps"]

_NO_ROOM = ("bound_full", "capacity", "over_budget")
_AT_ONCE = 100  # as the scripts: runs admitted in one step
_SWEPT_AT_ONCE = 50  # likewise


class PlannerSteps(MemorySteps):
    """See the module's text."""

    async def create(self, spec: BatchSpec) -> Decision:
        """Declare a batch: `commit`, `duplicate` for the same declaration, `reject batch_mismatch` for another."""
        declared = json.dumps(spec.as_fields() | {"suite_path": ""}, sort_keys=True)
        incarnation = self._runtime.token()
        there = self._world.batches.get(spec.batch)
        if there is None:
            made = MemoryBatch(spec, declared, incarnation, self._world.runtime.now)
            made.server = self._world.server
            self._world.batches[spec.batch] = made
            return self._begin("create", spec.batch).done()
        command = self._begin("create", spec.batch)
        if there.declared == declared:
            return command.again(incarnation=there.incarnation)
        return command.refused("batch_mismatch")

    async def admit(self, batch: BatchId, next_runs: NextRuns) -> Decision:
        """Admit the next runs while there is room. Answer: admitted, cursor, why_stopped."""
        next_runs, command_id = next_runs.first(_AT_ONCE), self._runtime.token()
        command = self._begin("admit", batch, command_id=command_id, **next_runs.as_fields())
        turned_away = self._not_next(command, next_runs.cursor, next_runs.runs)
        if turned_away is not None:
            return turned_away
        if not all(is_entry_id(entry.id) for entry in next_runs.read):
            return command.refused("schema")
        places: dict[RunId, str] = {}
        why = "none"
        for number, run in enumerate(next_runs.runs, start=1):
            place, mark = f"{command_id}.{number}", command.mark()
            refusal = self._give_place(command, run, place, next_runs)
            if refusal in _NO_ROOM and places:
                command.back_to(mark)
                why = refusal
                break
            if refusal is not None:
                return command.refused("schema" if refusal == "schema" else None)
            places[run] = place
        return self._admitted(command, places, next_runs.read, why)

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

    def _give_place(self, command: Command, run: RunId, place: str, next_runs: NextRuns) -> str | None:
        """A place on the plane and at the desk, room in the budget, and a judge; or why there is none."""
        at = command.batch
        if run in at.lives and run not in at.judge.tokens:
            return "schema"  # a hole that was never admitted: the cursor never comes back to it
        plane = self.plane.value
        key = {"key": result_key(plane, run), "plane": plane}
        if not command.step(at.plane, "admit", admission=place, **key):
            return command.last.reason
        if not command.step(at.desk, "acquire", step=run, lease=place):
            return command.last.reason
        if at.has_budget and at.ledger.spent + at.ledger.reserved + next_runs.expected > at.ledger.budget:
            command.note(command.name, Answer(Verb.REJECT, "over_budget"))
            return command.last.reason
        bound = {"candidate": next_runs.candidate, "judge": next_runs.judge}
        if not command.step(at.judge, "mint", run=run, **bound, epoch=1):
            return command.last.reason
        return None

    def _admitted(self, command: Command, places: dict[RunId, str], read: Sequence[Entry], why: str) -> Decision:
        at = command.batch
        for entry in read:  # wake-ups: any planner may take them off
            command.acknowledge(Group.PLANNER, entry.id)
        at.cursor += len(places)
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
            make_hole(command, run, why, "")
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

    async def expired_calls(self, batch: BatchId, desk: str) -> list[ExpiredCall]:
        """The requests at a desk whose holders are gone."""
        at = self._of(batch)
        expired = self._expired(batch, desk)
        return [
            ExpiredCall(lease, call.step, call.request)
            for life in at.lives.values()
            for lease, call in life.calls.items()
            if lease in expired and call.desk == desk
        ]

    def _expired(self, batch: BatchId, desk: str) -> list[str]:
        places = self._of(batch).desks[desk]
        return [lease for lease, known in places.leases.items() if known.expired_ms is not None and not known.gone]

    async def sweep(
        self,
        batch: BatchId,
        limit: int,
        desk: str = RUNS_DESK,
        figures: Mapping[str, int] | None = None,
        asked: Collection[str] | None = None,
    ) -> Decision:
        """Give back a desk's places whose lease expired and was never released. Answer: freed."""
        places, told = self._of(batch).desks[desk], figures or {}
        later = (
            set() if asked is None else {call.desk_lease for call in await self.expired_calls(batch, desk)} - {*asked}
        )
        expired = [lease for lease in self._expired(batch, desk) if lease not in later]
        expired = sorted(expired, key=lambda lease: lease not in told)
        if not expired:
            return Decision(BusVerb.COMMIT, None, "run.sweep", {"freed": 0})
        expired = expired[: min(limit, _SWEPT_AT_ONCE)]
        command = self._begin("sweep", batch, leases=len(expired), desk=desk)
        freed = 0
        for lease in expired:
            if not command.step(places, "reclaim", lease=lease, cancelled=lease in told):
                command.go_without()
                continue
            freed += 1
            self._charge(command, lease, told.get(lease))
        return command.done(Answer(Verb.COMMIT, None, {"freed": freed}))

    def _charge(self, command: Command, lease: str, figure: int | None) -> None:
        """Without a figure nobody knows what a request spent: what was reserved for it is taken, unless more came."""
        at = command.batch
        for life in at.lives.values():
            call = life.calls.pop(lease, None)
            if call is None:
                continue
            attempt = at.ledger.attempts[AttemptId(call.step, call.attempt)]
            still_spends = attempt.state is State.OPEN
            guess = max(attempt.billed, attempt.estimate) if still_spends else attempt.billed
            if figure is None:
                at.estimated += guess - attempt.billed
            settle_attempt(command, call.step, call.attempt, guess if figure is None else figure)

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
        rebound = command.last
        settle(command, life, JUDGE_DESK)
        at.parked.discard(run)
        life.scorer_lease, life.state, life.detail = "", RunState.SEALED, ""
        life.ended[command_id] = "rebind"
        emit_anew(command, Group.SCORER, run)
        return command.done(rebound)

    async def close(self, batch: BatchId, snapshot_id: str, accepted: int) -> Decision:
        """Close the histogram over the snapshot computed from the rows.

        The model computes the snapshot from its own: raises `ViolationError` when that has another name.
        """
        command = self._begin("close", batch, snapshot_id=snapshot_id, accepted=accepted)
        at, histogram = command.batch, command.batch.histogram
        if command.malformed:
            return command.refused("schema")
        if histogram.status is Status.CLOSED:
            return command.again(snapshot_id=histogram.snapshot_id, accepted=len(histogram.rows))
        in_doubt = self._too_early(command)
        if in_doubt is not None:
            return in_doubt
        if not command.step(histogram, "close"):
            return command.refused()
        if accepted != len(histogram.rows):  # its rows were read while the last run was still ending
            command.note("histogram.close", Answer(Verb.IN_DOUBT, "in_flight"))
            return command.refused()
        if histogram.snapshot_id != snapshot_id:
            raise ViolationError(
                f"batch {batch} was closed as {snapshot_id}, by its rows it is {histogram.snapshot_id}"
            )
        closed = command.last
        if at.has_calls:
            command.step(at.completion, "close")
        return command.done(closed)

    async def confirm(self, batch: BatchId) -> None:
        """See Bus: in memory there is nothing to wait for."""

    def _too_early(self, command: Command) -> Decision | None:
        """Every run has ended, and yet an effect is out of which nobody knows what becomes."""
        at = command.batch
        ended = len(at.histogram.rows) + len(at.histogram.holes) == at.spec.intended
        drained = at.histogram.status is Status.DRAINED
        return command.doubted("in_flight") if drained and ended and at.effects_open else None

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


def _admission(count: int, cursor: int, why: str) -> dict[str, object]:
    return {"admitted": count, "cursor": cursor, "why_stopped": why}
