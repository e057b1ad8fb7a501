"""A batch in memory: the models of the fences, and the life of each run, moved by the pipeline's joint steps.

What `lua/run/*.lua` does on the server is done here by the reference models: the same checks in the same order, all of
a step's changes or none, a record of every decision. The two are written apart and compared step by step, so that
either shows what is wrong with the other.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bus.history import Part, Recorded
from bus.memory_streams import MemoryStream
from bus.models import Answer, Model, Verb
from bus.models.admission import Admission
from bus.models.histogram import Histogram, Status
from bus.models.judge import Judge
from bus.models.model import fits
from bus.models.transcript import Run as Chain
from bus.models.transcript import Transcript
from bus.port import BatchSpec, Group, RunState
from bus.types import ConsumerId, Decision, EntryId, Gen, RunId
from bus.types import Verb as BusVerb

__all__ = ["WAITING", "Command", "Life", "MemoryBatch", "is_entry_id"]

COMMIT = Answer(Verb.COMMIT)

WAITING: Mapping[Group, tuple[RunState, ...]] = {
    Group.WORKER: (RunState.QUEUED, RunState.RUNNING),
    Group.SCORER: (RunState.SEALED, RunState.SCORING),
}
"""The states in which a run has its message in a group's stream."""


@dataclass(slots=True)
class Life:
    """One run beside its fences: where it is, who works on it."""

    entry: EntryId
    """The one message that counts; empty when there never was any."""
    state: RunState = RunState.QUEUED
    place: str = ""
    """Its lease at the desk of runs."""
    consumer: str = ""
    """Who claimed it last."""
    attempts: int = 0
    score_attempts: int = 0
    hand_backs: int = 0
    score_hand_backs: int = 0
    scorer_lease: str = ""
    ended: dict[str, str] = field(default_factory=dict)
    """Lease → the step that ended it: its resend is a duplicate, also when the run has moved on."""
    writers: list[Gen] = field(default_factory=list)
    """Who wrote each event of the transcript."""
    tree: str = ""
    artifact: str = ""
    detail: str = ""


class MemoryBatch:
    """See the module's text. `incarnation` and all random ids come from the callers."""

    def __init__(self, spec: BatchSpec, declared: str, incarnation: str, now: Callable[[], float]) -> None:
        """An empty batch, as `create` leaves it."""
        self.spec, self.declared, self.incarnation = spec, declared, incarnation
        self.transcript = Transcript()
        self.histogram = Histogram(
            intended=[], quorum=spec.quorum, bins=list(spec.bins), max_in_flight=spec.max_in_flight
        )
        self.judge = Judge(policy=spec.judge_policy, replay_budget=spec.replay_budget)
        self.desk = Admission(bound=spec.bound, reclaim_ms=spec.reclaim_ms)
        self.streams = {group: MemoryStream(now) for group in Group}
        self.lives: dict[RunId, Life] = {}
        """Every run that was admitted or abandoned, in that order."""
        self.parked: set[RunId] = set()
        self.dead: list[Mapping[str, str]] = []
        self.cursor = 0
        self.refused: Counter[str] = Counter()
        self.history: list[Recorded] = []

    @property
    def ended(self) -> bool:
        """Closed, or inconclusive."""
        return self.histogram.status in (Status.CLOSED, Status.INCONCLUSIVE)

    def life(self, run: RunId) -> Life:
        """A run's life; one that was never admitted has an empty one, which is not kept."""
        return self.lives.get(run) or Life(EntryId(""))

    def state(self, run: RunId) -> RunState | None:
        """Where a run is, or None when it was neither admitted nor abandoned."""
        return self.lives[run].state if run in self.lives else None

    def waits_for(self, group: Group, run: RunId) -> bool:
        """Whether a run is in a state in which a consumer of this group can move it."""
        return self.state(run) in WAITING.get(group, ())

    def chain(self, run: RunId) -> Chain:
        """A run's transcript; empty when nobody was granted it."""
        return self.transcript.runs.get(run) or Chain()

    def epoch(self, run: RunId) -> int:
        """The fenced scoring epoch, 0 before the first."""
        return self.histogram.epochs.get(run, 0)

    def holder_is_live(self, run: RunId, lease_id: str, gen: int) -> bool:
        """Whether this is the worker's live pair of a running run."""
        live = self.chain(run).live
        running = self.state(run) is RunState.RUNNING
        return running and live is not None and (live.lease_id, live.gen) == (lease_id, gen)

    def scorer_is_live(self, run: RunId, lease_id: str, gen: int) -> bool:
        """Whether this is the scorer's live pair of a run being scored."""
        scoring = self.state(run) is RunState.SCORING
        return scoring and self.life(run).scorer_lease == lease_id and self.epoch(run) == gen


class Command:
    """One joint step under way: its parts, and how it ends. The counterpart of `lua/include/call.lua`.

    A model's operation changes its model at once, while the step may still be refused by a later one. So each granted
    operation leaves behind what was there before it; a refusal puts that back. What a *refused* operation changed
    stands: that is what a refusal records (a dead letter, a proposal, a person who is asked).
    """

    def __init__(self, batch: MemoryBatch, name: str, run: RunId | None, envelope: Mapping[str, object]) -> None:
        """`envelope`: what the server would be sent; None is absent."""
        self.batch, self.name, self.run = batch, f"run.{name}", run
        presented = {**envelope, "run": run}
        self._envelope = {field: value for field, value in presented.items() if value is not None}
        self._parts: list[Part] = []
        self._before: list[_Before] = []
        self._last = (COMMIT, self.name)

    @property
    def malformed(self) -> bool:
        """An argument is not of its kind: refused before anything else is looked at."""
        return any(not _fits(self.name, field, value) for field, value in self._envelope.items())

    @property
    def last(self) -> Answer:
        """The last fence operation's answer."""
        return self._last[0]

    def step(self, model: Model, op: str, **args: object) -> bool:
        """One fence operation; True when it was granted."""
        before = _Before(model, {value for value in (*args.values(), self.run) if isinstance(value, str)})
        answer: Answer = getattr(model, op)(**args)
        self.note(f"{model.FENCE}.{op}", answer, args)
        granted = answer.verb in (Verb.COMMIT, Verb.DUPLICATE)
        if granted:
            self._before.append(before)
        return granted

    def note(self, by: str, answer: Answer, args: Mapping[str, object] | None = None) -> None:
        """A part of the record."""
        fence, _, op = by.partition(".")
        self._parts.append(Part(fence, op, answer.verb.value, answer.reason, args or {}, answer.fields))
        self._last = (answer, by)

    def go_without(self) -> None:
        """The last operation was refused, and the step stands without it: it is no part of what was done."""
        self._parts.pop()

    # --- ends ----------------------------------------------------------------------------------------------

    def done(self, answer: Answer = COMMIT) -> Decision:
        """All of it stands, and is recorded."""
        if not self._parts:
            self.note(self.name, answer)
        self._record()
        return _decision(answer, self.name)

    def again(self, **fields: object) -> Decision:
        """It was applied before: the first answer, and nothing else."""
        answer = Answer(Verb.DUPLICATE, None, fields)
        self._parts.clear()
        return self.done(answer)

    def refused(self, reason: str | None = None) -> Decision:
        """None of it stands but what the refusal itself records: the last fence's, or the pipeline's own `reason`."""
        if reason is not None:
            self.note(self.name, Answer(Verb.REJECT, reason))
        answer, by = self._last
        for before in reversed(self._before):
            before.restore()
        del self._parts[:-1]
        if answer.refused:
            self.batch.refused[answer.reason or ""] += 1
        self._record()
        return _decision(answer, by)

    def _record(self) -> None:
        number = EntryId(f"{len(self.batch.history) + 1}-0")
        self.batch.history.append(Recorded(number, self.name, self._envelope, tuple(self._parts), {}))

    # --- what steps share ----------------------------------------------------------------------------------

    def make_hole(self, run: RunId, why: str, detail: str) -> bool:
        """The run ends as a hole: its lease is taken away, its place given back. False when the histogram refuses."""
        batch, life = self.batch, self.batch.lives[run]
        if not self.step(batch.histogram, "abandon", run=run, epoch=batch.epoch(run), why=why):
            return False
        if batch.chain(run).live is not None:
            self.step(batch.transcript, "fence", run=run, gen=batch.chain(run).gen)
        if life.place:
            self.step(batch.desk, "release", lease=life.place)
        life.scorer_lease, life.state = "", RunState.HOLE
        life.detail = detail or life.detail
        return True

    def emit(self, group: Group, run: RunId) -> EntryId:
        """Send a group its message."""
        return self.batch.streams[group].add(run)

    def acknowledge(self, group: Group, entry: EntryId) -> None:
        """It has been handled."""
        self.batch.streams[group].acknowledge(entry)

    def owns(self, group: Group, entry: EntryId, consumer: ConsumerId) -> bool:
        """Whether the entry was given to this consumer last."""
        return self.batch.streams[group].owns(entry, consumer)


class _Before:
    """A model as it was before one operation, as far as an operation that names these ids may change it."""

    def __init__(self, model: Model, ids: set[str]) -> None:
        self._model, self._ids = model, ids
        self._fields: dict[str, object] = {}
        for name, value in vars(model).items():
            if isinstance(value, dict):
                self._fields[name] = {key: copy.deepcopy(value[key]) for key in ids if key in value}
            elif isinstance(value, set):
                self._fields[name] = value & ids
            elif not isinstance(value, list):  # a list is a log of what was refused, which stands
                self._fields[name] = value

    def restore(self) -> None:
        for name, saved in self._fields.items():
            now = getattr(self._model, name)
            if isinstance(now, dict) and isinstance(saved, dict):
                for key in self._ids:
                    if key in saved:
                        now[key] = saved[key]
                    else:
                        now.pop(key, None)
            elif isinstance(now, set) and isinstance(saved, set):
                now -= self._ids
                now |= saved
            else:
                setattr(self._model, name, saved)


def _decision(answer: Answer, by: str) -> Decision:
    return Decision(BusVerb(answer.verb.value), answer.reason, by, dict(answer.fields))


def _fits(step: str, name: str, value: object) -> bool:
    """Whether an argument is of its kind. Numbers that are minted count from 1; an operator may mean "none yet"."""
    if isinstance(value, int):
        minted = name in ("gen", "seq", "epoch", "judge_epoch", "events") and not step.endswith("hole")
        return fits("int1" if minted else "int", value)
    return fits("str", value) and (name != "entry" or is_entry_id(str(value)))


def is_entry_id(text: str) -> bool:
    """Whether a server would take it for an entry's id."""
    parts = text.split("-")
    return len(parts) == 2 and all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts)  # noqa: PLR2004 - `<ms>-<n>`, each below 2^64
