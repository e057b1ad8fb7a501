"""What the tests know of fence 4, completion: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bus.models import Model, Verb
from bus.models.completion import Completion, Lease, Request, Run, Shard
from tests.explore import Event, Kept, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick, text_of

# --- the race: a holder is preempted while its prompt is under way, and its successor asks again


def _request(who: str, request_id: str, prompt_hash: str = "hash") -> Args:
    """A request of one holder, under the lease that it was granted."""
    return lambda k: {
        "run": "n3",
        "step": "s1",
        "lease_id": f"lease of {who}",
        "gen": k[f"{who}.lease"]["gen"],
        "request_id": request_id,
        "prompt_hash": prompt_hash,
    }


def _answer(who: str, request_id: str, digest: str, *, ok: bool = True, prompt_hash: str = "hash") -> Args:
    """An answer to a request, presented under a holder's lease: its own, or one that it found."""
    asked = _request(who, request_id, prompt_hash)
    return lambda k: {**asked(k), "payload_ok": ok, "digest": digest}


def _fence(kept: Kept) -> dict[str, object]:
    return {"run": "n3", "gen": kept["a.lease"]["gen"]}


PREEMPTED = Scenario(
    "completion, preempted with a prompt under way",
    "completion",
    {"compute_retries": 1, "model_retries": 1},
    (
        Event("a.lease", "lease", always(run="n3", lease_id="lease of a")),
        Event("a.open", "open", _request("a", "q1"), after=("a.lease",), silenced_by=("a.crash",)),
        Event("a.bind", "bind", _answer("a", "q1", "d1"), after=("a.open",)),
        Event("a.bind again", "bind", _answer("a", "q1", "d1"), after=("a.bind",)),
        crash("a.crash"),
        Event("timeout", "fence", _fence, after=("a.lease",)),
        Event("a.lease late again", "lease", always(run="n3", lease_id="lease of a"), after=("a.lease",)),
        Event("b.lease", "lease", always(run="n3", lease_id="lease of b")),
        Event("b.open", "open", _request("b", "q2"), after=("b.lease",)),
        Event("b adopts", "bind", _answer("b", "q1", "d1"), after=("b.lease", "a.open")),
        Event("b.bind", "bind", _answer("b", "q2", "d2"), after=("b.open",)),
        Event("b's other prompt", "bind", _answer("b", "q2", "d2", prompt_hash="other"), after=("b.open",)),
        Event("close", "close", always()),
    ),
    meets=frozenset(
        {
            "bind commit",
            "bind duplicate",
            "bind reject after_close",
            "bind reject prompt_hash",
            "bind reject stale_lease",
            "bind reject unknown_request",
            "close commit",
            "fence commit",
            "fence reject stale_lease",
            "lease duplicate",
            "lease reject lease_reused",
            "open commit",
            "open reject already_bound",
            "open reject stale_lease",
        }
    ),
)

CORRUPT = Scenario(
    "completion, corrupt answers and a preempted replay",
    "completion",
    {"compute_retries": 1, "model_retries": 1},
    (
        Event("a.lease", "lease", always(run="n3", lease_id="lease of a")),
        Event("a.open", "open", _request("a", "q1"), after=("a.lease",)),
        Event("a.open again", "open", _request("a", "q1"), after=("a.open",)),
        Event("a.corrupt", "bind", _answer("a", "q1", "d0", ok=False), after=("a.open",)),
        Event("a.corrupt again", "bind", _answer("a", "q1", "d0", ok=False), after=("a.corrupt",)),
        Event("a.whole", "bind", _answer("a", "q1", "d1"), after=("a.open",)),
        Event("a.reopen", "open", _request("a", "q2"), after=("a.corrupt",), silenced_by=("a.crash",)),
        Event("a.corrupt for good", "bind", _answer("a", "q2", "d0", ok=False), after=("a.reopen",)),
        Event("a.goes on", "open", _request("a", "q4"), after=("a.corrupt for good",), silenced_by=("a.crash",)),
        crash("a.crash"),
        Event("timeout", "fence", _fence, after=("a.lease",)),
        Event("b.lease", "lease", always(run="n3", lease_id="lease of b")),
        Event("b.open", "open", _request("b", "q3"), after=("b.lease",)),
        Event("b.bind", "bind", _answer("b", "q3", "d3"), after=("b.open",)),
    ),
    meets=frozenset(
        {
            "bind commit",
            "bind reject already_bound",
            "bind reject retries_exhausted",
            "bind reject superseded",
            "bind replay payload_corrupt",
            "lease reject retries_exhausted",
            "open duplicate",
            "open reject already_bound",
            "open reject request_reused",
            "open reject retries_exhausted",
        }
    ),
)

SCENARIOS = (
    PREEMPTED,
    CORRUPT,
)


# --- the properties


def _shard(step: Step) -> Shard:
    return Shard(text_of(step, "run"), text_of(step, "step"))


def _presented_lease(step: Step) -> Lease:
    gen = step.call.args["gen"]
    assert isinstance(gen, int)
    return Lease(text_of(step, "lease_id"), gen)


def _live_when_bound(step: Step) -> bool:
    if not committed(step, "bind"):
        return True
    at = as_a(Completion, step.before).runs.get(text_of(step, "run"))
    return at is not None and at.live == _presented_lease(step)


def _prompt_left_under_that_lease(step: Step) -> bool:
    if not committed(step, "bind"):
        return True
    opened = as_a(Completion, step.before).requests.get(text_of(step, "request_id"))
    return opened == Request(_shard(step), _presented_lease(step), text_of(step, "prompt_hash"))


def _not_superseded(step: Step) -> bool:
    if not committed(step, "bind"):
        return True
    return as_a(Completion, step.before).latest.get(_shard(step)) == step.call.args["request_id"]


def _bound_once(step: Step) -> bool:
    before, after = as_a(Completion, step.before), as_a(Completion, step.after)
    grown = len(after.bound) - len(before.bound)
    return before.bound.items() <= after.bound.items() and grown == committed(step, "bind")


def _charged_as_named(step: Step) -> bool:
    """What each run has left, against what this step may cost it."""
    before, after = as_a(Completion, step.before), as_a(Completion, step.after)
    replayed = step.answer is not None and step.answer.verb is Verb.REPLAY
    first_time = str(step.call.args.get("request_id")) not in before.replayed
    for run, at in after.runs.items():
        was = before.runs.get(run)
        mine = step.call.args.get("run") == run
        compute = was.compute_left - (mine and committed(step, "lease")) if was else after.compute_retries
        model = was.model_left - (mine and replayed and first_time) if was else after.model_retries
        if (at.compute_left, at.model_left) != (compute, model) or min(compute, model) < 0:
            return False
    return True


def _nothing_after_the_close(step: Step) -> bool:
    before, after = as_a(Completion, step.before), as_a(Completion, step.after)
    return not before.closed or (after.closed and before.bound == after.bound)


def _exhausted_for_good(step: Step) -> bool:
    before, after = as_a(Completion, step.before), as_a(Completion, step.after)
    spent = {run for run, at in before.runs.items() if at.exhausted}
    granted = committed(step, "lease", "open", "bind") and step.call.args.get("run") in spent
    return not granted and all(after.runs[run].exhausted for run in spent)


def _only_lease_and_fence_move_a_lease(step: Step) -> bool:
    before, after = as_a(Completion, step.before), as_a(Completion, step.after)
    moving = committed(step, "lease", "fence")
    for run, at in after.runs.items():
        was = before.runs.get(run) or Run(0, 0)
        moved = moving and step.call.args.get("run") == run
        if not moved and (at.live, at.gen) != (was.live, was.gen):
            return False
        if moved and committed(step, "lease") and not _new_holder(at, was, text_of(step, "lease_id")):
            return False
    return True


def _new_holder(at: Run, was: Run, lease_id: str) -> bool:
    return at.gen > was.gen and at.live == Lease(lease_id, at.gen)


def _every_shard_ends(model: Model) -> bool:
    """Whoever may hold the run asks again and binds; where nobody may, the run has no retry left."""
    at = as_a(Completion, model)
    for shard in [shard for shard in at.latest if shard not in at.bound]:
        run = at.runs[shard.run]
        if at.closed or run.exhausted:
            continue
        if run.live is None and run.compute_left == 0:
            continue
        holder = run.live or Lease(f"successor at {shard}", run.gen + 1)
        at.decide("lease", {"run": shard.run, "lease_id": holder.lease_id})
        request: dict[str, object] = {
            "run": shard.run,
            "step": shard.step,
            "lease_id": holder.lease_id,
            "gen": holder.gen,
            "request_id": f"last request of {shard}",
            "prompt_hash": "hash",
        }
        at.decide("open", request)
        if at.decide("bind", {**request, "payload_ok": True, "digest": "d"}).verb is not Verb.COMMIT:
            return False
    return True


PROPERTIES = (
    Property("P1 a bound completion's lease and gen were live", _live_when_bound),
    Property("P2 its prompt left under that very lease", _prompt_left_under_that_lease),
    Property("P3 no later request had superseded it", _not_superseded),
    Property("P4 a shard is bound once", _bound_once),
    Property("P5 retries are charged as named, once", _charged_as_named),
    Property("P6 nothing is bound after the close", _nothing_after_the_close),
    Property("P7 an exhausted run is granted nothing", _exhausted_for_good),
    Property("P8 only lease and fence move a lease, and gens grow", _only_lease_and_fence_move_a_lease),
    Property("L1 every shard ends", live=_every_shard_ends),
)


BREAKS: Mapping[str, str] = {
    "bind_on_shard_id": "P2 its prompt left under that very lease",
    "bind_on_request_id": "P1 a bound completion's lease and gen were live",
    "live_lease_adopts": "P2 its prompt left under that very lease",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {
    "bind payload_corrupt": {"runs"},
    "bind retries_exhausted": {"runs"},
}
"""Refusal → the parts of the state that it may change."""

STEPS = ("s1", "s2")

RECORDED_BY: Mapping[str, frozenset[bytes]] = {
    "bind replay payload_corrupt": frozenset({b"c.model", *(b"c.q:" + step.encode() for step in STEPS)}),
    "bind reject retries_exhausted": frozenset({b"c.out"}),
}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """Small limits, so that they are met."""
    return {"compute_retries": rng.randint(0, 6), "model_retries": rng.randint(0, 2)}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Completion, model)
    run = rng.choice(["n1", "n2"])
    at = model.runs.get(run)
    op = pick(rng, lease=4, fence=3, open=20, bind=40, close=1)
    if op == "close" and rng.random() < 0.5:
        return Call("close", {})
    if at is None or at.live is None or op == "lease":
        return Call("lease", {"run": run, "lease_id": f"lease-{len(model.granted)}"})
    if op == "fence":
        return Call("fence", {"run": run, "gen": at.gen})
    step = rng.choice(STEPS)
    latest = model.latest.get(Shard(run, step))
    used_up = latest in model.replayed and rng.random() < 0.7  # else its answer is delivered once more
    if latest is None or used_up or op == "open":
        latest = f"q{len(model.requests)}"
    opened = model.requests.get(latest)
    request = {
        "run": run,
        "step": step,
        "lease_id": at.live.lease_id,
        "gen": at.gen,
        "request_id": latest,
        "prompt_hash": opened.prompt_hash if opened else rng.choice(["hash-1", "hash-2"]),
    }
    if opened is None:
        return Call("open", request)
    return Call("bind", {**request, "payload_ok": rng.random() < 0.6, "digest": rng.choice(["d1", "d2"])})
