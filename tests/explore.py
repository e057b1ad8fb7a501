"""Every order of a small set of events, played on a reference model.

A race is an order of messages. With a dozen events there are millions of orders but far fewer states between
them: two orders that left the same messages, the same known answers and the same state go on alike. So each
state is visited once, and the orders through it are counted. Nothing is sampled: every reachable state is
checked, and every step out of it.

    found = explore(events, lambda: build("transcript", {}), properties)
    found.broken      property → one order of events that breaks it
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bus.models import Answer, Model
from tests.calls import Call, play_call

__all__ = ["CRASH", "Event", "Exploration", "Kept", "Property", "Step", "clone", "explore", "random_order"]

Kept = Mapping[str, Mapping[str, object]]
"""Event → the fields of its answer, for the events that were granted."""

CRASH = "crash"
"""An event that sends nothing: its sender is dead, and what it had not sent yet never comes."""

NO_PART_IN_DECISIONS = ("refusals", "dead_letters")
"""Records that a model only ever adds to: states that differ in these alone behave alike."""


@dataclass(frozen=True, slots=True)
class Event:
    """One message that may arrive at any moment after those that it depends on."""

    name: str
    op: str
    """An operation of the fence, `clock` or `crash`."""
    args: Callable[[Kept], Mapping[str, object]]
    """From earlier answers; a `KeyError` means that its sender never learned what it needs, and stays silent."""
    after: tuple[str, ...] = ()
    """Events that must have arrived before: the order in which one client sends."""
    silenced_by: tuple[str, ...] = ()
    """Crashes after which this is not sent any more. A message under way names none: it comes late."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call, with the model before and after it. `None` stands for the clock, which has no answer."""

    before: Model
    call: Call
    answer: Answer | None
    after: Model


@dataclass(frozen=True, slots=True)
class Property:
    """Something that must hold. `step` is asked at each step, `live` in each state."""

    name: str
    step: Callable[[Step], bool] = lambda _step: True
    live: Callable[[Model], bool] = lambda _model: True
    """Whether the work can still be brought to its end from here; goes on playing on a copy of the model."""


@dataclass(slots=True)
class Exploration:
    """What was seen. `outcomes` holds `op verb reason` of every answer."""

    states: int = 0
    orders: int = 0
    ends: int = 0
    outcomes: set[str] = field(default_factory=set)
    broken: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        """`1,234 states, 5,678,901 orders, 12 different ends`."""
        return f"{self.states:,} states, {self.orders:,} orders, {self.ends:,} different ends"


def explore(
    events: Sequence[Event],
    make: Callable[[], Model],
    properties: Sequence[Property],
    *,
    until_broken: bool = False,
) -> Exploration:
    """Play every order of the events from the empty state and ask every property.

    `until_broken`: one order that breaks one of them is enough, and ends the search.
    """
    explorer = _Explorer(properties, until_broken)
    explorer.found.orders = explorer.visit(_start(events, make()), ())
    explorer.found.states = len(explorer.seen)
    return explorer.found


def random_order(events: Sequence[Event], model: Model, rng: random.Random) -> list[Step]:
    """One order from `model`'s state on, with what the model answered: to be repeated on a server."""
    state = _start(events, model)
    steps: list[Step] = []
    while ready := state.ready():
        event = rng.choice(ready)
        call = state.call(event)
        if call is None:
            state = state.unsent(event)
            continue
        played = _play(state.at, call)
        steps.append(Step(state.at.model, call, played.answer, played.at.model))
        state = state.sent(event, played)
    return steps


@dataclass(frozen=True, slots=True)
class _At:
    """Where the fence stands; `key` is equal for models that behave alike."""

    model: Model
    key: object


@dataclass(frozen=True, slots=True)
class _Played:
    answer: Answer | None
    at: _At


def _play(at: _At, call: Call) -> _Played:
    model = clone(at.model)
    answer = play_call(model, call)
    decisive = _decisive(model)
    key = at.key if decisive == _decisive(at.model) else _freeze(decisive)
    return _Played(answer, _At(model, key))


def _decisive(model: Model) -> dict[str, object]:
    return {name: value for name, value in vars(model).items() if name not in NO_PART_IN_DECISIONS}


@dataclass(frozen=True, slots=True)
class _State:
    """What is still to arrive, what the clients know, and how the fence stands."""

    left: Mapping[str, Event]
    kept: Kept
    knowledge: object
    """`kept`, frozen."""
    at: _At

    @property
    def key(self) -> object:
        return frozenset(self.left), self.knowledge, self.at.key

    def ready(self) -> list[Event]:
        return [event for event in self.left.values() if not self.left.keys() & set(event.after)]

    def call(self, event: Event) -> Call | None:
        """What is sent; nothing by a crash, or by somebody who never learned what it needs."""
        if event.op == CRASH:
            return None
        try:
            return Call(event.op, event.args(self.kept))
        except KeyError:
            return None

    def unsent(self, event: Event) -> _State:
        gone = {event.name}
        if event.op == CRASH:
            gone = {name for name, other in self.left.items() if event.name in other.silenced_by}
        return dataclasses.replace(self, left=_remaining(self.left, {event.name} | _following(self.left, gone)))

    def sent(self, event: Event, played: _Played) -> _State:
        left = _remaining(self.left, {event.name})
        answer = played.answer
        if answer is None or answer.verb not in ("commit", "duplicate"):
            return _State(left, self.kept, self.knowledge, played.at)
        kept = {**self.kept, event.name: dict(answer.fields)}
        return _State(left, kept, _freeze(kept), played.at)


def _start(events: Sequence[Event], model: Model) -> _State:
    at = _At(model, _freeze(_decisive(model)))
    return _State({event.name: event for event in events}, {}, _freeze({}), at)


def _following(left: Mapping[str, Event], gone: set[str]) -> set[str]:
    """When some events never happen, whatever had to follow them does not happen either."""
    while more := {name for name, event in left.items() if gone & set(event.after)} - gone:
        gone = gone | more
    return gone


def _remaining(left: Mapping[str, Event], gone: set[str]) -> dict[str, Event]:
    """What is left. A crash of somebody who has nothing more to send is no event."""
    events = {name: event for name, event in left.items() if name not in gone}
    silenced = {crash for event in events.values() for crash in event.silenced_by}
    return {name: event for name, event in events.items() if event.op != CRASH or name in silenced}


class _Explorer:
    def __init__(self, properties: Sequence[Property], until_broken: bool) -> None:
        self.properties = properties
        self.until_broken = until_broken
        self.found = Exploration()
        self.seen: dict[object, int] = {}
        """State → how many orders lead from it to an end."""
        self.played: dict[object, _Played] = {}
        """Standing and call → what came of it: the same from wherever it is reached, so asked about once."""
        self.finished: set[object] = set()
        """Standings from which liveness was asked."""

    def visit(self, state: _State, path: tuple[str, ...]) -> int:
        if self.until_broken and self.found.broken:
            return 0
        if state.key not in self.seen:
            self.seen[state.key] = self._orders(state, path)
        return self.seen[state.key]

    def _orders(self, state: _State, path: tuple[str, ...]) -> int:
        if state.at.key not in self.finished:
            self.finished.add(state.at.key)
            self._ask(path, lambda held: held.live(clone(state.at.model)))
        ready = state.ready()
        if not ready:
            self.found.ends += 1
            return 1
        return sum(self._arrive(state, event, (*path, event.name)) for event in ready)

    def _arrive(self, state: _State, event: Event, path: tuple[str, ...]) -> int:
        call = state.call(event)
        if call is None:
            return self.visit(state.unsent(event), path)
        return self.visit(state.sent(event, self._play(state.at, call, path)), path)

    def _play(self, at: _At, call: Call, path: tuple[str, ...]) -> _Played:
        key = (at.key, call.op, _freeze(dict(call.args)))
        if key not in self.played:
            played = self.played[key] = _play(at, call)
            step = Step(at.model, call, played.answer, played.at.model)
            self._ask(path, lambda held: held.step(step))
            self._note(step)
        return self.played[key]

    def _note(self, step: Step) -> None:
        if step.answer is not None:
            reason = [step.answer.reason] if step.answer.reason else []
            self.found.outcomes.add(" ".join([step.call.op, step.answer.verb.value, *reason]))

    def _ask(self, path: tuple[str, ...], holds: Callable[[Property], bool]) -> None:
        for held in self.properties:
            if held.name not in self.found.broken and not holds(held):
                self.found.broken[held.name] = path


def clone(model: Model) -> Model:
    """A copy that shares nothing that can change. `copy.deepcopy` does the same, ten times slower."""
    twin = copy.copy(model)
    vars(twin).update({name: _clone(value) for name, value in vars(model).items()})
    return twin


def _clone(value: object) -> object:
    match value:
        case str() | int() | None:
            return value
        case dict():
            return {key: _clone(item) for key, item in value.items()}
        case list():
            return [_clone(item) for item in value]
        case set():
            return set(value)
    if parts := _mutable_parts(value):
        twin = copy.copy(value)
        for name in parts:
            setattr(twin, name, _clone(getattr(value, name)))
        return twin
    return value


def _freeze(value: object) -> object:
    """A hashable value that is equal for equal states, whatever order things were added in."""
    match value:
        case str() | int() | None:
            return value
        case dict():
            return frozenset([(key, _freeze(item)) for key, item in value.items()])
        case list():
            return tuple([_freeze(item) for item in value])
        case set():
            return frozenset(value)
    if parts := _mutable_parts(value):
        return tuple([_freeze(getattr(value, name)) for name in parts])
    return value


def _mutable_parts(value: object) -> tuple[str, ...]:
    """The fields of a dataclass that can change; a frozen one is shared, and hashable, as it is."""
    hashable = getattr(type(value), "__hash__", None) is not None
    if hashable or not dataclasses.is_dataclass(value):
        return ()
    return tuple(part.name for part in dataclasses.fields(value))
