"""The scripts against the reference models: the same operations, every answer and the whole state compared.

They share no code. Where one of them forgets a check, takes two in another order, or writes what it refused, some
random operation tells.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.contract import CONTRACT
from bus.models import MODELS
from bus.target import Target
from tests.both import Both, both, shortest_sessions
from tests.driver import Call, Session, random_config, random_op, strategy_for
from tests.servers import RealServer
from tests.soak import times

FENCES = sorted(MODELS)

SESSIONS, STEPS = times(25), 40  # a fence: 1,000 steps
FAULTY_SESSIONS = times(100)  # more, since their state is compared only at the end
FAULTY = 0.5  # of the calls, where several faults are wanted at once: the rest bring the fence somewhere
HEADS = ("head", "parent")  # two names of one thing, so that a value of one is a likely fault of the other
EXAMPLES = times(20)  # a fence, of up to 30 steps: for what Hypothesis adds, the shrinking


@pytest.mark.parametrize("fence", FENCES)
async def test_the_server_decides_every_random_operation_as_the_model_does(server: Target, fence: str) -> None:
    """Valid, stale, crossed, repeated and malformed calls; the state is compared after each, not only at the end."""
    for seed in range(SESSIONS):
        rng = random.Random(seed)
        async with both(server, fence, random_config(rng, fence)) as pair:
            for _ in range(STEPS):
                await pair.send(random_op(rng, pair.model, pair.sent))
                await pair.compare()
            await _the_counts_agree_with_the_rows(pair)


@pytest.mark.parametrize("fence", FENCES)
async def test_of_several_faults_both_name_the_same_one(server: Target, fence: str) -> None:
    """The order of the checks is part of the contract: who is late *and* wrong learns that he is late."""
    for seed in range(FAULTY_SESSIONS):
        rng = random.Random(seed)
        async with both(server, fence, random_config(rng, fence)) as pair:
            for _ in range(STEPS):
                call = random_op(rng, pair.model, pair.sent)
                if rng.random() < FAULTY:
                    call = _with_faults(rng, call, pair.sent)
                await pair.send(call)
            await pair.compare()


def _with_faults(rng: random.Random, call: Call, sent: Sequence[Call]) -> Call:
    """Up to three arguments replaced by those of other calls, or by their neighbours when they are numbers."""
    args = dict(call.args)
    for name in rng.sample(sorted(args), min(len(args), rng.randint(1, 3))):
        kin = HEADS if name in HEADS else (name,)
        pool = [other.args[other_name] for other in sent for other_name in kin if other_name in other.args]
        own = args[name]
        if isinstance(own, int) and not isinstance(own, bool):
            pool += [own + 1, max(own - 1, 0)]
        args[name] = rng.choice([*pool, own])
    return Call(call.op, args)


@pytest.mark.parametrize("fence", FENCES)
async def test_server_and_model_agree_on_every_outcome_that_the_contract_names(any_server: Target, fence: str) -> None:
    """A rare one may be missing among the random calls above: here each is reached, on each kind of server."""
    sessions = shortest_sessions(fence)
    named = {f"{op.name} {outcome}" for op in CONTRACT[fence].ops.values() for outcome in op.outcomes}
    assert named <= sessions.keys()
    assert all(outcome.endswith(" reject schema") for outcome in sessions.keys() - named)
    for outcome, session in sessions.items():
        async with both(any_server, fence, session.config) as pair:
            for call in session.calls:
                await pair.send(call)
            await pair.compare()
            assert outcome in pair.outcomes


@given(data=st.data())
@settings(max_examples=EXAMPLES * len(FENCES), deadline=None, suppress_health_check=list(HealthCheck))
def test_hypothesis_finds_no_session_that_the_two_tell_apart(valkey: RealServer, data: st.DataObject) -> None:
    """The same, with sessions that Hypothesis makes shorter and shorter while the two still differ."""
    # Without a lambda: Hypothesis parses the text of one to describe it, and CPython 3.11 may fail at that.
    fence = data.draw(st.sampled_from(FENCES))
    session = data.draw(strategy_for(fence, max_calls=30))
    asyncio.run(_play(valkey.target, session))


async def _play(target: Target, session: Session) -> None:
    async with both(target, session.fence, session.config) as pair:
        for call in session.calls:
            await pair.send(call)
        await pair.compare()
        await _the_counts_agree_with_the_rows(pair)


async def _the_counts_agree_with_the_rows(pair: Both) -> None:
    """Progress is read from counts alone: one that drifts from what it counts shows nowhere else."""
    state, counts = pair.model.dump(), await pair.counts()
    refused = {name.removeprefix("refused:"): n for name, n in counts.items() if name.startswith("refused:")}
    assert refused == state["refusals"]
    if pair.fence == "histogram":
        in_flight, holes = state["in_flight"], state["holes"]
        assert isinstance(in_flight, list)
        assert isinstance(holes, dict)
        assert counts.get("fenced", 0) == len(in_flight)
        assert counts.get("holes", 0) == len(holes)
