"""One joint step under way, in memory: what it asked of the models, and how it ends.

The counterpart of `lua/include/call.lua`. A model's operation changes its model at once, while the step may still be
refused by a later one. So each granted operation leaves behind what was there before it, and a refusal puts that back.
What stands nevertheless is what the *refused* operation itself recorded (a dead letter, a proposal, an attempt that is
used up), and the chunks of model calls that a step carries: tokens were spent whatever the step is answered.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from bus.memory.batch import MemoryBatch
from bus.models import Answer, Model, Verb
from bus.models.admission import Admission
from bus.models.completion import Completion, Shard
from bus.models.indoubt import InDoubt
from bus.models.indoubt import Ref as Pair
from bus.models.ledger import AttemptId, Ledger
from bus.models.model import fits
from bus.models.outbox import UNDO, undone_by
from bus.models.sandbox import Sandbox
from bus.port import Group
from bus.recorded import Part, Recorded
from bus.types import ConsumerId, Decision, EntryId, RunId
from bus.types import Verb as BusVerb

__all__ = ["COMMIT", "Command", "is_entry_id"]

COMMIT = Answer(Verb.COMMIT)

_FROM_ONE = ("seq", "judge_epoch", "events", "attempt", "intents")
"""Whole numbers that count from 1, whoever names them."""


@dataclass(frozen=True, slots=True)
class _Noted:
    """A part of the record, and whether it stands also when the step is refused."""

    part: Part
    stands: bool = False


class Command:
    """See the module's text."""

    def __init__(self, batch: MemoryBatch, name: str, run: RunId | None, envelope: Mapping[str, object]) -> None:
        """`envelope`: what the server would be sent; None is absent."""
        self.batch, self.name, self.run = batch, f"run.{name}", run
        presented = {**envelope, "run": run}
        self._envelope = {field: value for field, value in presented.items() if value is not None}
        self._parts: list[_Noted] = []
        self._before: list[_Before] = []
        self._last = (COMMIT, self.name)
        batch.set_clocks()

    @property
    def malformed(self) -> bool:
        """An argument is not of its kind: refused before anything else is looked at."""
        return any(not _fits(self.name, field, value) for field, value in self._envelope.items())

    @property
    def parts(self) -> list[Part]:
        """What was noted so far."""
        return [noted.part for noted in self._parts]

    @property
    def last(self) -> Answer:
        """The last fence operation's answer."""
        return self._last[0]

    def step(self, model: Model, op: str, **args: object) -> bool:
        """One fence operation; True when it was granted."""
        before = _Before(model, _touched(model, {"run": self.run, **args}))
        granted = self._ask(model, op, args, stands=False)
        if granted:
            self._before.append(before)
        return granted

    def step_kept(self, model: Model, op: str, **args: object) -> bool:
        """Likewise, and it stands whatever becomes of the rest."""
        return self._ask(model, op, args, stands=True)

    def _ask(self, model: Model, op: str, args: Mapping[str, object], *, stands: bool) -> bool:
        answer: Answer = getattr(model, op)(**args)
        self.note(f"{model.FENCE}.{op}", answer, args, stands=stands)
        return answer.verb in (Verb.COMMIT, Verb.DUPLICATE)

    def note(self, by: str, answer: Answer, args: Mapping[str, object] | None = None, *, stands: bool = False) -> None:
        """A part of the record."""
        fence, _, op = by.partition(".")
        given = {name: value for name, value in (args or {}).items() if value is not None}
        part = Part(fence, op, answer.verb.value, answer.reason, given, answer.fields)
        if stands:
            self._count(answer)
        self._parts.append(_Noted(part, stands))
        self._last = (answer, by)

    def go_without(self) -> None:
        """The last operation was refused, and the step stands without it: it is no part of what was done."""
        self._parts.pop()

    # --- a place to go back to -------------------------------------------------------------------------------

    def mark(self) -> int:
        """How far the step has come."""
        return len(self._before)

    def back_to(self, mark: int) -> None:
        """Take back what was granted since, and the operation that was refused after it."""
        while len(self._before) > mark:
            self._before.pop().restore()
            self._parts.pop()
        self._parts.pop()

    # --- ends ----------------------------------------------------------------------------------------------

    def done(self, answer: Answer = COMMIT, by: str | None = None) -> Decision:
        """All of it stands, and is recorded. `by`: whose decision it is, when it is not the step's own."""
        if not self._parts:
            self.note(self.name, answer)
        self._record()
        return _decision(answer, by or self.name)

    def done_though_refused(self, by: str) -> Decision:
        """A fence's refusal is the answer, and all that was done beside it stands."""
        said = [part for part in self.parts if f"{part.fence}.{part.op}" == by][-1]
        answer = Answer(Verb(said.verb), said.reason, said.answer)
        self._count(answer)
        return self.done(answer, by)

    def decided(self, answer: Answer, by: str) -> Decision:
        """What the parts say, each of which stands by itself and was counted."""
        self._record()
        return _decision(answer, by)

    def again(self, **fields: object) -> Decision:
        """It was applied before: the first answer, and nothing else."""
        answer = Answer(Verb.DUPLICATE, None, fields)
        self._back()
        self.note(self.name, answer)
        return self.done(answer)

    def refused(self, reason: str | None = None, **told: object) -> Decision:
        """None of it stands but what the refusal itself records: the last fence's, or the pipeline's own `reason`.

        `told`: what the answer says beside the fence's own words.
        """
        return self._refuse(None if reason is None else Answer(Verb.REJECT, reason, told), told)

    def refused_instead(self, reason: str) -> Decision:
        """As `refused`, in the place of what the last fence was asked: its answer is no part of the step."""
        self._parts.pop()
        return self.refused(reason)

    def refused_as(self, by: str, reason: str, **args: object) -> Decision:
        """What a fence refuses of a run whose row does not hold what is asked for."""
        self.note(by, Answer(Verb.REJECT, reason), args)
        return self.refused()

    def doubted(self, reason: str, **fields: object) -> Decision:
        """None of it stands: it cannot be decided yet."""
        return self._refuse(Answer(Verb.IN_DOUBT, reason, fields), {})

    def _refuse(self, own: Answer | None, told: Mapping[str, object]) -> Decision:
        if own is not None:
            self.note(self.name, own)
        answer, by = self._last
        self._back(but=self._parts[-1])
        self._count(answer)
        self._record()
        return _decision(Answer(answer.verb, answer.reason, {**answer.fields, **told}), by)

    def _back(self, but: _Noted | None = None) -> None:
        for before in reversed(self._before):
            before.restore()
        self._before.clear()
        self._parts = [noted for noted in self._parts if noted.stands or noted is but]

    def _count(self, answer: Answer) -> None:
        if answer.refused:
            self.batch.refused[answer.reason or ""] += 1

    def _record(self) -> None:
        number = self._next_id()
        parts = tuple(noted.part for noted in self._parts)
        self.batch.history.append(Recorded(number, self.name, self._envelope, parts, {}))

    def _next_id(self) -> EntryId:
        """As a stream would name it: the batch's clock in ms, and a count within each; they grow whatever that does."""
        ms, last = self.batch.now_ms(), self.batch.history[-1].id if self.batch.history else "0-0"
        last_ms, _, count = last.partition("-")
        if ms > int(last_ms):
            return EntryId(f"{ms}-0")
        return EntryId(f"{last_ms}-{int(count) + 1}")

    # --- messages --------------------------------------------------------------------------------------------

    def emit(self, group: Group, run: RunId, **fields: str) -> EntryId:
        """Send a group its message."""
        return self.batch.streams[group].add({"run": run, **fields})

    def acknowledge(self, group: Group, entry: EntryId) -> None:
        """It has been handled."""
        self.batch.streams[group].acknowledge(entry)

    def owns(self, group: Group, entry: EntryId, consumer: ConsumerId) -> bool:
        """Whether the entry was given to this consumer last."""
        return self.batch.streams[group].owns(entry, consumer)


class _Before:
    """A model as it was before one operation, as far as that operation may change it."""

    def __init__(self, model: Model, keys: set[Hashable]) -> None:
        self._model, self._keys = model, keys
        self._fields: dict[str, object] = {}
        for name, value in vars(model).items():
            if isinstance(value, dict):
                self._fields[name] = {key: _copied(value[key]) for key in keys if key in value}
            elif isinstance(value, set):
                self._fields[name] = value & keys
            elif not isinstance(value, list):  # a list is a log of what was refused, which stands
                self._fields[name] = value

    def restore(self) -> None:
        for name, saved in self._fields.items():
            now = getattr(self._model, name)
            if isinstance(now, dict) and isinstance(saved, dict):
                for key in self._keys:
                    if key in saved:
                        now[key] = saved[key]
                    else:
                        now.pop(key, None)
            elif isinstance(now, set) and isinstance(saved, set):
                now -= self._keys
                now |= saved
            else:
                setattr(self._model, name, saved)


_PLAIN = (str, int, type(None))


def _copied(value: object) -> object:
    """A copy of what an operation may change in place. A frozen value is only ever replaced, so it needs none."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, list):
        return [_copied(item) for item in value]
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    params = getattr(value, "__dataclass_params__", None)
    if params is None:
        return copy.deepcopy(value)
    if params.frozen:
        return value
    made: object = object.__new__(type(value))
    for name in value.__dataclass_fields__:  # type: ignore[attr-defined]  # it has parameters, so it is a dataclass
        setattr(made, name, _copied(getattr(value, name)))
    return made


def _touched(model: Model, args: Mapping[str, object]) -> set[Hashable]:
    """The keys under which an operation may change something: what it names, and what those stand for."""
    keys: set[Hashable] = {value for value in args.values() if isinstance(value, str)}
    match model:
        case Completion() if "step" in args:
            keys.add(Shard(str(args["run"]), str(args["step"])))
        case InDoubt() if "key" in args:
            keys.add(Pair(str(args["run"]), str(args["key"]), _int(args["epoch"])))
        case Ledger():
            keys.add(AttemptId(str(args["step"]), _int(args["attempt"])))
        case Admission() if (lease := model.leases.get(str(args["lease"]))) is not None:
            keys.add(lease.step)
        case Sandbox():  # a newer write, or a newer life of the workspace, loses older ones
            keys |= model.writes.keys()
    intent = args.get("intent_id")
    if isinstance(intent, str):
        keys |= {intent + UNDO, undone_by(intent) or intent}
    return keys


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _decision(answer: Answer, by: str) -> Decision:
    return Decision(BusVerb(answer.verb.value), answer.reason, by, dict(answer.fields))


def _fits(step: str, name: str, value: object) -> bool:
    """Whether an argument is of its kind. Numbers that are minted count from 1; an operator may mean "none yet"."""
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        minted = name == "gen" and "tool_" not in step  # an undo's generation is 0
        rebound = name == "epoch" and step == "run.rebind"  # a workspace's is 0 where there is none
        from_one = (minted and not step.endswith("hole")) or rebound or name in _FROM_ONE
        return fits("int1" if from_one else "int", value)
    return fits("str", value) and (name != "entry" or is_entry_id(str(value)))


def is_entry_id(text: str) -> bool:
    """Whether a server would take it for an entry's id."""
    parts = text.split("-")
    return len(parts) == 2 and all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts)  # noqa: PLR2004 - `<ms>-<n>`, each below 2^64
