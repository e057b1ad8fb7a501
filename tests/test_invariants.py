"""Each fence's race, in every order; and each naive policy, caught.

The explorer plays every order of a scenario's messages on the model and asks the fence's named properties at every
step. Then it plays the same scenario under each mutant, which must break the property that it is known to break: a
property that lets a mutant live says nothing about the fence either.
"""

from __future__ import annotations

import inspect
import random
import re
from collections.abc import Mapping, Sequence
from functools import partial

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.models import MODELS, MUTANTS, build
from tests.driver import Session, play_call, strategy_for
from tests.explore import Property, Step, clone, explore, random_order
from tests.fences import FENCES
from tests.fences.fence import Scenario

SCENARIOS: list[Scenario] = [scenario for module in FENCES.values() for scenario in module.SCENARIOS]
PROPERTIES: Mapping[str, Sequence[Property]] = {fence: module.PROPERTIES for fence, module in FENCES.items()}
BREAKS: Mapping[str, Mapping[str, str]] = {fence: module.BREAKS for fence, module in FENCES.items()}

LEAST_ORDERS = 100_000


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_no_order_of_a_race_breaks_an_invariant(scenario: Scenario) -> None:
    """Two holders, a duplicate, a late message, a crash, a timeout, in every order; no state is a dead end.

    The answers that the scenario is there for must have come up, or its orders would prove nothing.
    """
    make = partial(build, scenario.fence, scenario.config)
    found = explore(scenario.events, make, PROPERTIES[scenario.fence])
    print(f"{scenario}: {found}")
    assert found.broken == {}
    assert scenario.meets <= found.outcomes
    assert found.orders >= LEAST_ORDERS


@pytest.mark.parametrize(("fence", "mutant"), [(fence, mutant) for fence in MUTANTS for mutant in MUTANTS[fence]])
def test_a_naive_policy_breaks_the_property_that_its_fence_is_for(fence: str, mutant: str) -> None:
    """Under the mutant some order of some scenario of the fence breaks the property named for it."""
    expected = [held for held in PROPERTIES[fence] if held.name == BREAKS[fence][mutant]]
    for scenario in (one for one in SCENARIOS if one.fence == fence):
        make = partial(build, fence, scenario.config, mutant=mutant)
        broken = explore(scenario.events, make, expected, until_broken=True).broken
        for name, order in broken.items():
            print(f"{fence} {mutant}: {name} ({' > '.join(order)})")
            return
    pytest.fail(f"{fence}: the mutant {mutant} survives")


def test_every_fence_has_its_scenario_its_properties_and_its_mutants() -> None:
    """A fence that is added without one of them fails here, not silently."""
    fences = set(MODELS)
    assert {scenario.fence for scenario in SCENARIOS} == fences
    assert set(PROPERTIES) == fences
    assert {fence: set(names) for fence, names in BREAKS.items()} == {
        fence: set(mutants) for fence, mutants in MUTANTS.items()
    }


def test_the_properties_are_the_invariants_that_the_models_name() -> None:
    """`P1 …` in the docstring of a model is `P1 …` here, and the other way round."""
    for fence, model in MODELS.items():
        story = inspect.getmodule(model).__doc__ or ""
        listed = set(re.findall(r"(?:^| )([A-Z]\d) ", story.partition("Invariants")[2], re.MULTILINE))
        assert listed == {held.name.partition(" ")[0] for held in PROPERTIES[fence]}, fence


@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_sampled_order_is_one_that_can_be_repeated(scenario: Scenario) -> None:
    """The calls of random orders, made again from the empty state, get the same answers and end the same."""
    orders = set()
    for seed in range(20):
        steps = random_order(scenario.events, build(scenario.fence, scenario.config), random.Random(seed))
        again = build(scenario.fence, scenario.config)
        assert [play_call(again, step.call) for step in steps] == [step.answer for step in steps]
        assert again.dump() == steps[-1].after.dump()
        orders.add(tuple(str(step.call) for step in steps))
    assert len(orders) >= 15, "a sample must not be one order again and again"


@pytest.mark.parametrize("fence", sorted(MODELS))
def test_no_random_session_breaks_an_invariant(fence: str) -> None:
    """Valid, stale, resent, crossed and malformed calls: the properties hold at each step, and at the end."""

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy_for(fence))
    def check(session: Session) -> None:
        model = build(session.fence, session.config)
        for call in session.calls:
            before = clone(model)
            step = Step(before, call, play_call(model, call), model)
            broken = [held.name for held in PROPERTIES[fence] if not held.step(step)]
            assert broken == []
        assert [held.name for held in PROPERTIES[fence] if not held.live(clone(model))] == []

    check()


@pytest.mark.parametrize("fence", sorted(MODELS))
def test_a_refusal_changes_nothing_but_its_record(fence: str) -> None:
    """Of a refused call the state keeps the count, and what the contract names for that very refusal."""

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy_for(fence))
    def check(session: Session) -> None:
        model = build(session.fence, session.config)
        for call in session.calls:
            before = model.dump()
            answer = play_call(model, call)
            if answer is None or answer.reason is None:
                continue
            allowed = FENCES[fence].KEPT_BY.get(f"{call.op} {answer.reason}", set()) | {"refusals"}
            if (fence, call.op) == ("transcript", "append") and answer.reason != "schema":
                allowed |= {"dead_letters"}
            after = model.dump()
            assert {name for name in after if after[name] != before[name]} <= allowed

    check()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(sorted(MODELS)).flatmap(strategy_for))
def test_a_model_is_deterministic(session: Session) -> None:
    """The same calls give the same answers and the same dump: replay and comparison stand on it."""
    one, two = (build(session.fence, session.config) for _ in range(2))
    assert [play_call(one, call) for call in session.calls] == [play_call(two, call) for call in session.calls]
    assert one.dump() == two.dump()
