"""Every order of a small set of events, played on a reference model.

A race is an order of messages. With a dozen events there are millions of orders but far fewer states between
them: two orders that left the same messages, the same known answers and the same state go on alike. So each
state is visited once, and the orders through it are counted. Nothing is sampled: every step out of every
reachable state is checked, and every end.

    found = explore(events, lambda: build("transcript", {}), properties)
    found.broken      property → one order of events that breaks it
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from bus.models import Answer, Model
from bus.vector_file import CLOCK
from tests.driver import Call

__all__ = ["CRASH", "Event", "Exploration", "Kept", "Property", "Step", "explore", "random_order"]

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
    """Something that must hold. `step` is asked at each step, `end` once nothing is left to arrive."""

    name: str
    step: Callable[[Step], bool] = lambda _step: True
    end: Callable[[Model], bool] = lambda _model: True
    """Liveness; may go on playing on the model that it is given."""


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
    until: str | None = None,
) -> Exploration:
    """Play every order of the events from the empty state and ask every property.

    `until` names a property: the search is over once it was seen to break.
    """
    explorer = _Explorer(properties, until)
    explorer.found.orders = explorer.visit(_State.start(events, make()), ())
    explorer.found.states = len(explorer.seen)
    return explorer.found


def random_order(events: Sequence[Event], model: Model, rng: random.Random) -> list[Call]:
    """One order, as the calls that were really made from `model`'s state on: to be repeated on a server."""
    state = _State.start(events, model)
    calls: list[Call] = []
    while ready := state.ready():
        arrival = state.arrive(rng.choice(ready))
        calls += [arrival.call] if arrival.call else []
        state = arrival.state
    return calls


@dataclass(frozen=True, slots=True)
class _Arrival:
    """What an event led to. There is no call when nothing was sent."""

    state: _State
    call: Call | None = None
    answer: Answer | None = None


@dataclass(frozen=True, slots=True)
class _State:
    """What is still to arrive, what the clients know, and how the fence stands."""

    left: Mapping[str, Event]
    kept: Kept
    model: Model
    knowledge: object
    standing: object
    """`kept` and `model` in a form that is equal for equal states; carried along where nothing changed."""

    @classmethod
    def start(cls, events: Sequence[Event], model: Model) -> _State:
        return cls({event.name: event for event in events}, {}, model, _freeze({}), _freeze(_decisive(model)))

    def key(self) -> object:
        return frozenset(self.left), self.knowledge, self.standing

    def ready(self) -> list[Event]:
        return [event for event in self.left.values() if not self.left.keys() & set(event.after)]

    def arrive(self, event: Event) -> _Arrival:
        if event.op == CRASH:
            silent = {name for name, other in self.left.items() if event.name in other.silenced_by}
            return _Arrival(self._without(event, silent))
        try:
            call = Call(event.op, event.args(self.kept))
        except KeyError:
            return _Arrival(self._without(event, {event.name}))
        model = _clone_model(self.model)
        answer = None
        if event.op == CLOCK:
            ms = call.args["advance_ms"]
            assert isinstance(ms, int)
            model.elapse(ms)
        else:
            answer = model.decide(call.op, call.args)
        return _Arrival(self._moved(event, answer, model), call, answer)

    def _without(self, event: Event, gone: set[str]) -> _State:
        left = {name: other for name, other in self.left.items() if name != event.name}
        return dataclasses.replace(self, left=_without(left, gone))

    def _moved(self, event: Event, answer: Answer | None, model: Model) -> _State:
        left = {name: other for name, other in self.left.items() if name != event.name}
        kept, knowledge, standing = self.kept, self.knowledge, self.standing
        if answer is not None and answer.verb in ("commit", "duplicate"):
            kept = {**kept, event.name: dict(answer.fields)}
            knowledge = _freeze(kept)
        decisive = _decisive(model)
        if decisive != _decisive(self.model):
            standing = _freeze(decisive)
        return _State(left, kept, model, knowledge, standing)


def _decisive(model: Model) -> dict[str, object]:
    return {name: value for name, value in vars(model).items() if name not in NO_PART_IN_DECISIONS}


def _without(left: Mapping[str, Event], gone: set[str]) -> dict[str, Event]:
    """What is left when some events never happen: whatever had to follow them does not either."""
    while more := {name for name, event in left.items() if gone & set(event.after)} - gone:
        gone = gone | more
    return {name: event for name, event in left.items() if name not in gone}


class _Explorer:
    def __init__(self, properties: Sequence[Property], until: str | None) -> None:
        self.properties = properties
        self.until = until
        self.found = Exploration()
        self.seen: dict[object, int] = {}
        """State → how many orders lead from it to an end."""

    def visit(self, state: _State, path: tuple[str, ...]) -> int:
        if self.until in self.found.broken:
            return 0
        key = state.key()
        if key not in self.seen:
            self.seen[key] = self._orders(state, path)
        return self.seen[key]

    def _orders(self, state: _State, path: tuple[str, ...]) -> int:
        ready = state.ready()
        if not ready:
            self.found.ends += 1
            self._ask(path, lambda held: held.end(_clone_model(state.model)))
            return 1
        return sum(self._arrive(state, event, (*path, event.name)) for event in ready)

    def _arrive(self, state: _State, event: Event, path: tuple[str, ...]) -> int:
        arrival = state.arrive(event)
        if arrival.call is not None:
            step = Step(state.model, arrival.call, arrival.answer, arrival.state.model)
            self._ask(path, lambda held: held.step(step))
        if arrival.answer is not None:
            reason = arrival.answer.reason
            words = (event.op, arrival.answer.verb.value, *([reason] if reason else []))
            self.found.outcomes.add(" ".join(words))
        return self.visit(arrival.state, path)

    def _ask(self, path: tuple[str, ...], holds: Callable[[Property], bool]) -> None:
        for held in self.properties:
            if held.name not in self.found.broken and not holds(held):
                self.found.broken[held.name] = path


def _clone_model(model: Model) -> Model:
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
    if parts := _mutable_parts(type(value)):
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
    if parts := _mutable_parts(type(value)):
        return tuple([_freeze(getattr(value, name)) for name in parts])
    return value


@cache
def _mutable_parts(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass that can change; a frozen one is shared, and hashable, as it is."""
    if not dataclasses.is_dataclass(kind) or kind.__hash__ is not None:
        return ()
    return tuple(part.name for part in dataclasses.fields(kind))
