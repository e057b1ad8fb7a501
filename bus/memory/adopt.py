"""A closed batch's sealed runs taken over in memory, to be scored anew: the counterpart of `lua/run/adopt.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace

from bus.memory.batch import Life, MemoryBatch
from bus.memory.command import Command, is_entry_id
from bus.memory.planner import PlannerSteps
from bus.memory.steps import make_hole, result_key
from bus.models import Answer, Verb
from bus.port import Entry, Group, NextRuns, RunState
from bus.types import BatchId, Decision, EntryId, RunId
from bus.types import Verb as BusVerb

__all__ = ["AdoptSteps"]

_AT_ONCE = 100  # as the script
_NO_ROOM = ("bound_full", "capacity", "over_budget")


class AdoptSteps(PlannerSteps):
    """See the module's text."""

    async def adopt(self, batch: BatchId, source: BatchId, next_runs: NextRuns) -> Decision:
        """Take over the next runs of a closed batch, as they were sealed there."""
        next_runs, command_id = next_runs.first(_AT_ONCE), self._runtime.token()
        runs, read = next_runs.runs, next_runs.read
        command = self._begin("adopt", batch, command_id=command_id, source=source, **next_runs.as_fields())
        at, origin = command.batch, self._world.batches.get(source)
        turned_away = self._not_of(command, source, origin) or self._not_next(command, next_runs.cursor, runs)
        if turned_away is not None:
            return turned_away
        if not all(is_entry_id(entry.id) for entry in read) or any(run in at.lives for run in runs):
            return command.refused("schema")
        assert origin is not None, "it has ended"
        if any(run not in origin.lives for run in runs):
            return command.refused("unknown_run")
        lives: dict[RunId, Life] = {}
        why = "none"
        for number, run in enumerate(runs, start=1):
            mark, was = command.mark(), origin.lives[run]
            if not _is_sealed(origin, run):
                lives[run] = at.lives[run] = Life(EntryId(""))
                at.histogram.intended |= {run}
                make_hole(command, run, origin.histogram.holes[run], was.detail)
                continue
            place = f"{command_id}.{number}"
            refusal = self._give_place(command, run, place, next_runs)
            if refusal in _NO_ROOM and lives:
                command.back_to(mark)
                why = refusal
                break
            if refusal is not None or not self._take_over(command, run, was, place, origin.chain(run).head):
                for one in lives:
                    at.lives.pop(one, None)
                at.histogram.intended -= lives.keys()
                return command.refused()
            lives[run] = replace(
                Life(EntryId(""), state=RunState.SEALED, place=place),
                gen=was.gen, conversation=was.conversation, tree=was.tree, artifact=was.artifact,
                writers=deepcopy(was.writers),
            )  # fmt: skip
        return self._adopted(command, origin, lives, read, why)

    def _not_of(self, command: Command, source: BatchId, origin: MemoryBatch | None) -> Decision | None:
        """The refusal of a source that is not this batch's, or has not ended; None for any other."""
        if command.malformed or command.batch.ended:
            return None  # refused for that, whatever the source
        if command.batch.spec.source != source:
            return command.refused("batch_mismatch")
        return command.refused("source_open") if origin is None or not origin.ended else None

    def _take_over(self, command: Command, run: RunId, was: Life, place: str, head: str) -> bool:
        """What the fences of a sealed run know of it there, they know here."""
        at, plane = command.batch, self.plane.value
        if was.tree and not command.step(at.workspace, "record", step=run, gen=was.gen, tree_hash=was.tree):
            return False
        key = {"admission": place, "key": result_key(plane, run), "plane": plane}
        return command.step(at.plane, "write", **key, body=head)

    def _adopted(
        self, command: Command, origin: MemoryBatch, lives: dict[RunId, Life], read: Sequence[Entry], why: str
    ) -> Decision:
        at = command.batch
        for entry in read:
            command.acknowledge(Group.PLANNER, entry.id)
        at.cursor += len(lives)
        answer = {"admitted": len(lives), "cursor": at.cursor, "why_stopped": why}
        if not lives:
            return Decision(BusVerb.COMMIT, None, command.name, answer)
        at.histogram.intended |= lives.keys()
        for run, life in lives.items():
            at.lives.pop(run, None)  # in their order
            at.lives[run] = life
            if life.state is RunState.HOLE:
                command.emit(Group.PLANNER, run)
            else:
                at.transcript.runs[at.chain_name(run)] = deepcopy(origin.chain(run))
                life.entry = command.emit(Group.SCORER, run)
        if at.cursor == at.spec.intended:
            command.step(at.histogram, "drain")
            answer["why_stopped"] = "drained"
        return command.done(Answer(Verb.COMMIT, None, answer))


def _is_sealed(origin: MemoryBatch, run: RunId) -> bool:
    """Whether it was sealed there, whatever its judge then made of it."""
    return origin.chain(run).sealed
