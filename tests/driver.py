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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from bus.models import Answer, Model, build
from bus.models.admission import Admission, Lease
from bus.models.histogram import Histogram
from bus.models.judge import Judge
from bus.models.transcript import Run, Transcript
from bus.vector_file import CLOCK

__all__ = ["Call", "Session", "play_call", "random_config", "random_op", "strategy_for"]


@dataclass(frozen=True, slots=True)
class Call:
    """One operation as it is sent; `clock` with `advance_ms` moves the time instead."""

    op: str
    args: Mapping[str, object]


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


def play_call(model: Model, call: Call) -> Answer | None:
    """Play a call on a model. The clock has no answer."""
    if call.op == CLOCK:
        ms = call.args["advance_ms"]
        assert isinstance(ms, int)
        model.elapse(ms)
        return None
    return model.decide(call.op, call.args)


def random_config(rng: random.Random, fence: str) -> dict[str, object]:
    """Small limits, so that they are met."""
    match fence:
        case "histogram":
            return {
                "intended": ["n1", "n2", "n3"],
                "quorum": rng.randint(1, 3),
                "bins": ["pass", "fail"],
                "max_in_flight": rng.randint(1, 3),
            }
        case "judge":
            return {
                "policy": rng.choice(["reject", "replay", "review"]),
                "replay_budget": rng.randint(0, 2),
            }
        case "admission":
            return {"bound": rng.randint(1, 2), "reclaim_ms": 100}
        case _:
            return {}


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
    match model:
        case Transcript():
            return _transcript(rng, model)
        case Histogram():
            return _histogram(rng, model)
        case Judge():
            return _judge(rng, model)
        case Admission():
            return _admission(rng, model)
        case _:
            raise NotImplementedError(model.FENCE)


def _pick(rng: random.Random, **weights: int) -> str:
    return rng.choices(list(weights), list(weights.values()))[0]


def _transcript(rng: random.Random, model: Transcript) -> Call:
    run = rng.choice(["n1", "n2", "n3"])
    at = model.runs.get(run) or Run()
    op = _pick(rng, lease=1, fence=1, resume=1, append=6, intend=3, seal=1)
    if at.live is None or op == "lease":
        lease_id = f"lease-{len(model.granted)}" if rng.random() < 0.9 else f"lease-{rng.randrange(4)}"
        return Call("lease", {"run": run, "lease_id": lease_id})
    seq = at.length + 1
    holder = {"run": run, "lease_id": at.live.lease_id, "gen": at.live.gen}
    intended = at.intentions.get(seq)
    args: dict[str, Callable[[], dict[str, object]]] = {
        "fence": lambda: {"run": run, "gen": at.gen},
        "resume": lambda: dict(holder),
        "append": lambda: {
            **holder,
            "parent": at.head,
            "seq": seq,
            "payload": rng.choice(["plan", "call ls", "é/☃"]),
            **({"intent": intended.digest} if intended else {}),
        },
        "intend": lambda: {
            **holder,
            "parent": at.head,
            "seq": seq + rng.choice([0, 0, 0, 1]),
            "digest": rng.choice(["call-1", "call-2"]),
        },
        "seal": lambda: {**holder, "head": rng.choice([at.head, at.head, *at.heads])},
    }
    return Call(op, args[op]())


def _histogram(rng: random.Random, model: Histogram) -> Call:
    run = rng.choice([*sorted(model.intended), "stranger"] if rng.random() < 0.2 else sorted(model.intended))
    epoch = model.epochs.get(run, 0)
    digest = model.digests.get(run, f"art-{run}")
    op = _pick(rng, fence=5, score=6, abandon=2, drain=1, close=1, pass_rate=1)
    args: dict[str, dict[str, object]] = {
        "fence": {"run": run, "epoch": epoch + 1, "digest": digest},
        "score": {
            "run": run,
            "digest": digest,
            "epoch": epoch,
            "bin": rng.choice(["pass", "pass", "pass", "fail", "other"]),
            "value": rng.choice(["1", "0"]),
        },
        "abandon": {"run": run, "epoch": epoch, "why": rng.choice(["poison", "solver_error"])},
    }
    return Call(op, args.get(op, {}))


def _judge(rng: random.Random, model: Judge) -> Call:
    run = rng.choice(["n1", "n2", "n3"])
    candidate, judge = rng.choice(["ca", "cb"]), rng.choice(["ja", "jb"])
    bound = model.tokens.get(run)
    epoch = bound.epoch if bound else 1
    routed = rng.random() < 0.6  # to the pair that was bound
    op = _pick(rng, mint=2, rebind=2, commit=5)
    args: dict[str, dict[str, object]] = {
        "mint": {"run": run, "candidate": candidate, "judge": judge, "epoch": rng.randint(1, 3)},
        "rebind": {"run": run, "epoch": epoch, "candidate": candidate, "judge": judge},
        "commit": {
            "run": run,
            "observed_candidate": bound.candidate if bound and routed else candidate,
            "observed_judge": bound.judge if bound and routed else judge,
            "epoch": epoch,
            "score_digest": rng.choice(["d1", "d2"]),
        },
    }
    return Call(op, args[op])


def _admission(rng: random.Random, model: Admission) -> Call:
    known = rng.choice(sorted(model.leases)) if model.leases else "no-lease"
    taken = [lease for lease, at in sorted(model.leases.items()) if not at.gone]
    lease = rng.choice(taken) if taken and rng.random() < 0.8 else known
    at = model.leases.get(lease) or Lease("none", 1)
    op = _pick(rng, acquire=4, expire=2, apply=3, release=1, reclaim=2, clock=1)
    args: dict[str, dict[str, object]] = {
        "acquire": {"step": f"s{rng.randrange(6)}", "lease": f"{rng.getrandbits(128):032x}"},
        "expire": {"lease": lease},
        "apply": {"lease": lease, "gen": at.gen, "digest": rng.choice(["d1", "d2"])},
        "release": {"lease": lease},
        "reclaim": {"lease": lease, "cancelled": rng.random() < 0.3},
        CLOCK: {"advance_ms": rng.choice([1, 50, 99, 100])},
    }
    return Call(op, args[op])
