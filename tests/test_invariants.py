"""Each fence's race, in every order; and each naive policy, caught.

A scenario is the set of messages that make a fence's race: two holders, a duplicate, a message that comes late, a
crash, a timeout. The explorer plays every order of them and asks the fence's named properties at every step. Then the
same scenario is played under each mutant, and must find the property that this policy breaks: a check that lets a
mutant live checks nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings

from bus.models import MODELS, MUTANTS, build
from bus.models.transcript import EMPTY, chain
from tests.driver import Session, strategy_for
from tests.explore import CRASH, Event, Kept, Step, explore, random_order
from tests.properties import PROPERTIES


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fence, how it is configured, what happens, and the answers that some order must bring out."""

    fence: str
    config: Mapping[str, object]
    events: tuple[Event, ...]
    meets: frozenset[str]


def _always(**args: object) -> Callable[[Kept], Mapping[str, object]]:
    return lambda _kept: args


def _crash(name: str) -> Event:
    return Event(name, CRASH, _always())


PLAN = chain(EMPTY, "plan")
"""The head after the first holder's first event."""

TRANSCRIPT = Scenario(
    "transcript",
    {},
    (
        # The first holder: plans, announces a call, makes it, writes what came back. It may die at any moment.
        Event("a.lease", "lease", _always(run="n3", lease_id="la")),
        Event(
            "a.plan",
            "append",
            lambda k: {"run": "n3", "lease_id": "la", "gen": k["a.lease"]["gen"], "parent": EMPTY, "seq": 1, "payload": "plan"},
            after=("a.lease",),
            silenced_by=("a.crash",),
        ),
    ),
    frozenset(),
)
