"""What the tests know of fence 11, admission: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bus.models import Model, Verb
from bus.models.admission import Admission, Lease
from bus.vector_file import CLOCK
from tests.explore import Event, Kept, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick, text_of

# --- the race: the clock fires, the retry goes out, both bodies arrive


def _lease(kept: Kept, who: str) -> dict[str, object]:
    return {"lease": kept[f"{who}.acquire"]["lease"]}


def _body(who: str, digest: str) -> Args:
    return lambda k: {**_lease(k, who), "gen": k[f"{who}.acquire"]["gen"], "digest": digest}


def _of(who: str, **more: object) -> Args:
    return lambda k: {**_lease(k, who), **more}


def _admission(bound: int) -> Scenario:
    return Scenario(
        f"admission, bound {bound}",
        "admission",
        {"bound": bound, "reclaim_ms": 1000},
        (
            Event("a.acquire", "acquire", always(step="s1", lease="a" * 32)),
            Event("a.acquire again", "acquire", always(step="s1", lease="a" * 32), after=("a.acquire",)),
            Event("a.body", "apply", _body("a", "d1"), after=("a.acquire",)),
            Event("a.body again", "apply", _body("a", "d1"), after=("a.body",)),
            Event("a.second body", "apply", _body("a", "d2"), after=("a.acquire",)),
            Event("a.release", "release", _of("a"), after=("a.body",), silenced_by=("a.crash",)),
            crash("a.crash"),
            Event("timeout", "expire", _of("a"), after=("a.acquire",)),
            Event("b.acquire", "acquire", always(step="s1", lease="b" * 32)),
            Event("b.body", "apply", _body("b", "d3"), after=("b.acquire",)),
            Event("b.release", "release", _of("b"), after=("b.body",)),
            Event("time passes", CLOCK, always(advance_ms=1000)),
            Event("reclaim a", "reclaim", _of("a", cancelled=False), after=("timeout",)),
            Event("reclaim b", "reclaim", _of("b", cancelled=True), after=("b.acquire",)),
            Event("c.acquire", "acquire", always(step="s2", lease="c" * 32)),
        ),
        meets=frozenset(
            {
                "acquire duplicate",
                "acquire reject bound_full",
                "acquire reject step_committed",
                "acquire reject step_in_flight",
                "apply duplicate",
                "apply reject stale_gen",
                "apply reject step_committed",
                "expire reject not_live",
                "reclaim commit",
                "reclaim in_doubt cancel_pending",
                "reclaim reject double_release",
                "reclaim reject still_live",
                "release reject double_release",
            }
        ),
    )


SCENARIOS = (
    _admission(1),
    _admission(2),
)


# --- the properties


def _in_flight_within_the_bound(step: Step) -> bool:
    at = as_a(Admission, step.after)
    held = sum(not lease.gone for lease in at.leases.values())
    return at.in_flight == held and 0 <= held <= at.bound


def _one_commit_a_step(step: Step) -> bool:
    before, after = as_a(Admission, step.before), as_a(Admission, step.after)
    grown = len(after.committed) - len(before.committed)
    return before.committed.items() <= after.committed.items() and grown == committed(step, "apply")


def _by_a_live_lease(step: Step) -> bool:
    if not committed(step, "apply"):
        return True
    before, lease = as_a(Admission, step.before), text_of(step, "lease")
    known = before.leases[lease]
    return before.live.get(known.step) == lease and known.gen == step.call.args["gen"]


def _a_timeout_is_answered(step: Step) -> bool:
    """A body after its timeout is stale; before it, no second request leaves for the step."""
    before = as_a(Admission, step.before)
    if committed(step, "acquire"):
        return text_of(step, "step") not in before.live
    if step.call.op != "apply" or step.answer is None:
        return True
    lease = before.leases.get(str(step.call.args.get("lease")))
    late = lease is not None and lease.expired_ms is not None
    return not late or step.answer.verb is Verb.DUPLICATE or step.answer.reason in ("stale_gen", "schema")


def _sweep(at: Admission) -> None:
    """What the sweeper does: expire what is silent, and after its time reclaim it."""
    for lease in list(at.live.values()):
        at.decide("expire", {"lease": lease})
    at.elapse(at.reclaim_ms)
    for lease in [lease for lease, known in at.leases.items() if not known.gone]:
        at.decide("reclaim", {"lease": lease, "cancelled": False})


def _no_slot_leaks(model: Model) -> bool:
    at = as_a(Admission, model)
    _sweep(at)
    return at.in_flight == 0


def _every_step_can_commit(model: Model) -> bool:
    at = as_a(Admission, model)
    _sweep(at)
    for step in sorted({lease.step for lease in at.leases.values()} - at.committed.keys()):
        lease: Mapping[str, object] = at.decide("acquire", {"step": step, "lease": f"retry of {step}"}).fields
        if not lease or at.decide("apply", {**lease, "digest": "retried"}).verb is not Verb.COMMIT:
            return False
        at.decide("release", {"lease": lease["lease"]})
    return True


PROPERTIES = (
    Property("P1 in flight stays within the bound", _in_flight_within_the_bound),
    Property("P2 a step commits at most once", _one_commit_a_step),
    Property("P3 a commit's lease and gen were live", _by_a_live_lease),
    Property("P4 a timeout gives a stale body, or no second send", _a_timeout_is_answered),
    Property("L1 no slot leaks", live=_no_slot_leaks),
    Property("L2 every step can commit", live=_every_step_can_commit),
)


BREAKS: Mapping[str, str] = {
    "retry_bypasses_bound": "P1 in flight stays within the bound",
    "apply_without_live_check": "P3 a commit's lease and gen were live",
    "no_reclaim": "L1 no slot leaks",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {}
"""Refusal → the parts of the state that it may change."""

RECORDED_BY: Mapping[str, frozenset[bytes]] = {}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """Small limits, so that they are met."""
    return {"bound": rng.randint(1, 2), "reclaim_ms": 100}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Admission, model)
    known = rng.choice(sorted(model.leases)) if model.leases else "no-lease"
    taken = [lease for lease, at in sorted(model.leases.items()) if not at.gone]
    lease = rng.choice(taken) if taken and rng.random() < 0.8 else known
    at = model.leases.get(lease) or Lease("none", 1)
    op = pick(rng, acquire=4, expire=2, apply=3, release=1, reclaim=2, clock=1)
    args: dict[str, dict[str, object]] = {
        "acquire": {"step": f"s{rng.randrange(6)}", "lease": f"{rng.getrandbits(128):032x}"},
        "expire": {"lease": lease},
        "apply": {"lease": lease, "gen": at.gen, "digest": rng.choice(["d1", "d2"])},
        "release": {"lease": lease},
        "reclaim": {"lease": lease, "cancelled": rng.random() < 0.3},
        CLOCK: {"advance_ms": rng.choice([1, 50, 99, 100])},
    }
    return Call(op, args[op])
