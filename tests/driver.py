"""Random operations for a fence: likely ones, late ones, crossed ones, malformed ones.

Uniformly random arguments would be refused at the first check, always the same one. So an operation is first
made as a well-informed client would make it, from the model's own state, and then now and then spoilt: sent a
second time, given one argument of an older call (a stale generation, another run's lease), or one that is no
argument at all.

    call = random_op(rng, model, past)      one at a time, to drive a model and a server side by side
    strategy_for("transcript")              whole sessions for Hypothesis, which shrinks them
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from bus.models import Model, build
from bus.vector_file import CLOCK
from tests.calls import Call, play_call
from tests.fences import FENCES

__all__ = ["Call", "Session", "play_call", "random_config", "random_op", "strategy_for"]


@dataclass(frozen=True, slots=True)
class Session:
    """A fence from its empty state: how it is configured, and what is sent."""

    fence: str
    config: Mapping[str, object]
    calls: tuple[Call, ...]


RESENT, CROSSED, MALFORMED = 0.10, 0.22, 0.06
"""How often a call is spoilt, and how."""

ABSENT = object()
BAD: tuple[object, ...] = (ABSENT, None, "", 0, -1, True, 1.0, 1.5, 2**53, "1", [], {}, [""], ["a"], {"a": 1}, "\ud800")
"""For every kind of argument some of these are malformed, and some are not."""


def random_op(rng: random.Random, model: Model, past: Sequence[Call]) -> Call:
    """The next call to a fence that stands as `model` does, where `past` was sent before."""
    dice = rng.random()
    sent = [call for call in past if call.op != CLOCK]
    if sent and dice < RESENT:
        return rng.choice(sent)
    call = _likely(rng, model)
    if not call.args or call.op == CLOCK:
        return call
    if dice < RESENT + CROSSED:
        return _crossed(rng, call, sent)
    if dice < RESENT + CROSSED + MALFORMED:
        return _spoilt(call, rng.choice(sorted(call.args)), rng.choice(BAD))
    return call


def random_config(rng: random.Random, fence: str) -> dict[str, object]:
    """Small limits, so that they are met."""
    made: dict[str, object] = FENCES[fence].config(rng)
    return made


@st.composite
def _sessions(draw: st.DrawFn, fence: str, max_calls: int) -> Session:
    rng = draw(st.randoms(use_true_random=False))
    config = random_config(rng, fence)
    model = build(fence, config)
    calls: list[Call] = []
    for _ in range(draw(st.integers(1, max_calls))):
        calls.append(random_op(rng, model, calls))
        play_call(model, calls[-1])
    return Session(fence, config, tuple(calls))


def strategy_for(fence: str, max_calls: int = 40) -> st.SearchStrategy[Session]:
    """Sessions of up to `max_calls` calls. Arguments are concrete: generations as the model mints them."""
    return _sessions(fence, max_calls)


def _crossed(rng: random.Random, call: Call, sent: Sequence[Call]) -> Call:
    """One argument is another call's of the same name, or its neighbour when it is a number."""
    name = rng.choice(sorted(call.args))
    pool = [other.args[name] for other in sent if name in other.args]
    own = call.args[name]
    if isinstance(own, int) and not isinstance(own, bool):
        pool += [own + 1, max(own - 1, 0)]
    return _spoilt(call, name, rng.choice(pool)) if pool else call


def _spoilt(call: Call, name: str, value: object) -> Call:
    args = {key: item for key, item in call.args.items() if key != name}
    return Call(call.op, args if value is ABSENT else {**args, name: value})


def _likely(rng: random.Random, model: Model) -> Call:
    made: Call = FENCES[model.FENCE].likely(rng, model)
    return made
