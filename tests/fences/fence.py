"""The words in which `tests/fences/<fence>.py` tells what the tests know of a fence.

Each module has SCENARIOS (sets of messages that the explorer brings in every order: two holders, a duplicate, a
message that comes late, a crash and a timeout at least), PROPERTIES (asked at every step, the last ones liveness),
BREAKS (which property each naive policy breaks), KEPT_BY and RECORDED_BY (what a refusal itself may change), `config`
and `likely`.

A crash silences what its sender has not sent yet; what is not silenced is under way and may come at any time, also
after the crash and after a successor has begun. Properties are written against the state alone and compute what they
can anew (hashes, counts), so that a model that checks wrongly is not judged by its own check.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from bus.models import Model, Verb
from tests.calls import Call
from tests.explore import CRASH, Event, Kept, Step

__all__ = ["Args", "Call", "Scenario", "always", "as_a", "committed", "crash", "pick", "text_of"]

M = TypeVar("M", bound=Model)

Args = Callable[[Kept], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fence, how it is configured, what happens, and answers that some order must bring out."""

    name: str
    fence: str
    config: Mapping[str, object]
    events: tuple[Event, ...]
    meets: frozenset[str]

    def __str__(self) -> str:
        """Its name: pytest shows it."""
        return self.name


def always(**args: object) -> Args:
    """The same arguments, whatever was answered before."""
    return lambda _kept: args


def crash(name: str) -> Event:
    """A death: what it silences is never sent."""
    return Event(name, CRASH, always())


def as_a(kind: type[M], model: Model) -> M:
    """The model as what it is."""
    assert isinstance(model, kind)
    return model


def committed(step: Step, *ops: str) -> bool:
    """Whether the step is one of these operations, and was applied."""
    return step.answer is not None and step.answer.verb is Verb.COMMIT and step.call.op in ops


def text_of(step: Step, name: str) -> str:
    """An argument that is text."""
    value = step.call.args[name]
    assert isinstance(value, str)
    return value


def pick(rng: random.Random, **weights: int) -> str:
    """One of the names, by weight."""
    return rng.choices(list(weights), list(weights.values()))[0]
