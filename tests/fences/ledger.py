"""What the tests know of fence 10, ledger: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bus.models import Model, Verb
from bus.models.ledger import Attempt, AttemptId, Ledger, State
from tests.explore import Event, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick, text_of

# --- the race: a stream breaks, its retry goes out, and the rest of the stream comes after all


def _attempt(number: int, step: str = "sum", **more: object) -> Args:
    return always(step=step, attempt=number, **more)


def _chunk(number: int, seq: int, tokens: int, *, durable: bool = True) -> Args:
    return _attempt(number, seq=seq, tokens=tokens, durable=durable)


BROKEN_STREAM = Scenario(
    "ledger, a stream that breaks and its retry",
    "ledger",
    {"budget": 200},
    (
        Event("a.admit", "admit", _attempt(1, estimate=100)),
        Event("a.1", "chunk", _chunk(1, 1, 30), after=("a.admit",)),
        Event("a.2", "chunk", _chunk(1, 2, 20, durable=False), after=("a.admit",)),
        Event("a.2 durable", "chunk", _chunk(1, 2, 20), after=("a.2",), silenced_by=("a.crash",)),
        Event("a.done", "done", _attempt(1, last_seq=2), after=("a.1",), silenced_by=("a.crash",)),
        Event("a.done again", "done", _attempt(1, last_seq=2), after=("a.done",)),
        crash("a.crash"),
        Event("timeout", "cut", _attempt(1), after=("a.admit",)),
        Event("gateway", "reconcile", _attempt(1, gateway_billed=60), after=("timeout",)),
        Event("b.admit", "admit", _attempt(2, estimate=100)),
        Event("b.1", "chunk", _chunk(2, 1, 50), after=("b.admit",)),
        Event("b.done", "done", _attempt(2, last_seq=1), after=("b.1",)),
        Event("redelivered", "admit", _attempt(1, estimate=100)),
    ),
    meets=frozenset(
        {
            "admit reject already_committed",
            "admit reject attempt_reused",
            "chunk commit",
            "chunk duplicate",
            "chunk reject attempt_closed",
            "cut commit",
            "cut reject attempt_closed",
            "done commit",
            "done duplicate",
            "done in_doubt missing_chunks",
            "done reject already_committed",
            "done reject attempt_closed",
            "done reject not_durable",
            "reconcile commit",
        }
    ),
)

ONE_BUDGET = Scenario(
    "ledger, two holders on one budget",
    "ledger",
    {"budget": 100},
    (
        Event("a.admit", "admit", _attempt(1, estimate=60)),
        Event("a.1", "chunk", _chunk(1, 1, 40, durable=False), after=("a.admit",)),
        Event("a.1 again", "chunk", _chunk(1, 1, 41, durable=True), after=("a.1",)),
        crash("a.crash"),
        Event("a.abandon", "abandon", _attempt(1), after=("a.admit",), silenced_by=("a.crash",)),
        Event("timeout", "cut", _attempt(1), after=("a.admit",)),
        Event("a.3 late", "chunk", _chunk(1, 3, 10), after=("a.1",)),
        Event("gateway", "reconcile", _attempt(1, gateway_billed=45), after=("a.1",)),
        Event("gateway again", "reconcile", _attempt(1, gateway_billed=45), after=("gateway",)),
        Event("gateway differs", "reconcile", _attempt(1, gateway_billed=39), after=("gateway",)),
        Event("b.admit", "admit", _attempt(1, "plan", estimate=50)),
        Event("b.admit anew", "admit", _attempt(2, "plan", estimate=50), after=("b.admit",)),
    ),
    meets=frozenset(
        {
            "abandon commit",
            "abandon reject attempt_closed",
            "admit commit",
            "admit reject over_budget",
            "chunk duplicate",
            "chunk reject attempt_closed",
            "cut commit",
            "reconcile commit",
            "reconcile duplicate",
            "reconcile in_doubt attempt_open",
            "reconcile reject already_reconciled",
            "reconcile reject below_durable",
        }
    ),
)

SCENARIOS = (
    BROKEN_STREAM,
    ONE_BUDGET,
)


# --- the properties


def _ids(step: Step) -> AttemptId:
    number = step.call.args["attempt"]
    assert isinstance(number, int)
    return AttemptId(text_of(step, "step"), number)


def _every_token_is_spent(step: Step) -> bool:
    at = as_a(Ledger, step.after)
    for attempt in at.attempts.values():
        came = sum(chunk.tokens for chunk in attempt.chunks.values())
        if attempt.billed != came and not attempt.settled:
            return False
        if attempt.billed < sum(chunk.tokens for chunk in attempt.chunks.values() if chunk.durable):
            return False
    return at.spent == sum(attempt.billed for attempt in at.attempts.values())


def _committed_attempts(model: Ledger) -> dict[AttemptId, Attempt]:
    return {name: at for name, at in model.attempts.items() if at.state is State.COMMITTED}


def _one_attempt_commits(step: Step) -> bool:
    names = _committed_attempts(as_a(Ledger, step.after))
    return len({name.step for name in names}) == len(names)


def _committed_whole(step: Step) -> bool:
    if not committed(step, "done"):
        return True
    at = as_a(Ledger, step.after).attempts[_ids(step)]
    last = step.call.args["last_seq"]
    assert isinstance(last, int)
    durable = sum(chunk.tokens for chunk in at.chunks.values() if chunk.durable)
    return set(range(1, last + 1)) <= at.chunks.keys() and at.billed == durable


def _granted_within_the_budget(step: Step) -> bool:
    if not committed(step, "admit"):
        return True
    at = as_a(Ledger, step.after)
    held = sum(max(one.estimate - one.billed, 0) for one in at.attempts.values() if one.state is State.OPEN)
    return sum(one.billed for one in at.attempts.values()) + held <= at.budget


def _committed_steps_are_done(step: Step) -> bool:
    if not committed(step, "admit"):
        return True
    return text_of(step, "step") not in {name.step for name in _committed_attempts(as_a(Ledger, step.before))}


def _closed_stays_closed(step: Step) -> bool:
    before, after = as_a(Ledger, step.before), as_a(Ledger, step.after)
    if committed(step, "admit") and _ids(step) in before.attempts:
        return False
    return all(
        after.attempts[name].state is at.state for name, at in before.attempts.items() if at.state is not State.OPEN
    )


def _chunks_stand(step: Step) -> bool:
    before, after = as_a(Ledger, step.before), as_a(Ledger, step.after)
    for name, was in before.attempts.items():
        at = after.attempts[name]
        if was.settled and (at.billed, at.durable) != (was.billed, was.durable):
            return False
        for seq, first in was.chunks.items():
            chunk = at.chunks[seq]
            if chunk.tokens != first.tokens or (first.refused and chunk != first) or (first.durable and chunk != first):
                return False
    return True


def _close_all(at: Ledger) -> None:
    for name in [name for name, attempt in at.attempts.items() if attempt.state is State.OPEN]:
        at.decide("cut", {"step": name.step, "attempt": name.number})


def _no_reservation_leaks(model: Model) -> bool:
    at = as_a(Ledger, model)
    _close_all(at)
    return at.reserved == 0


def _every_step_can_commit(model: Model) -> bool:
    """By an attempt that nobody used; unless more is spent than there was."""
    at = as_a(Ledger, model)
    _close_all(at)
    done = {name.step for name in _committed_attempts(at)}
    for step in sorted({name.step for name in at.attempts} - done):
        if at.spent > at.budget:
            return True
        fresh = {"step": step, "attempt": 1 + max(name.number for name in at.attempts)}
        at.decide("admit", {**fresh, "estimate": at.budget - at.spent})
        at.decide("chunk", {**fresh, "seq": 1, "tokens": at.budget - at.spent, "durable": True})
        if at.decide("done", {**fresh, "last_seq": 1}).verb is not Verb.COMMIT:
            return False
    return True


PROPERTIES = (
    Property("S1 every token that came is spent, durable or orphan", _every_token_is_spent),
    Property("S2 a step is committed by one attempt", _one_attempt_commits),
    Property("S3 a committed attempt is whole and durable", _committed_whole),
    Property("S4 what is granted fits into the budget", _granted_within_the_budget),
    Property("S5 a committed step is admitted no more", _committed_steps_are_done),
    Property("S6 an attempt is used once and stays closed", _closed_stays_closed),
    Property("S7 first tokens stand, refused and settled never change", _chunks_stand),
    Property("L1 no reservation leaks", live=_no_reservation_leaks),
    Property("L2 every step can commit while there is budget", live=_every_step_can_commit),
)


BREAKS: Mapping[str, str] = {
    "step_counter": "S1 every token that came is spent, durable or orphan",
    "cache_ttl_for_commits": "S5 a committed step is admitted no more",
    "no_reservation": "S4 what is granted fits into the budget",
    "two_attempts_commit": "S2 a step is committed by one attempt",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {
    "admit already_committed": {"attempts"},
    "admit over_budget": {"attempts"},
    "chunk attempt_closed": {"attempts", "spent", "orphan"},
    "done already_committed": {"attempts", "reserved"},
    "done not_durable": {"attempts", "reserved"},
}
"""Refusal → the parts of the state that it may change."""

STEPS = ("sum", "plan")


def _fields(prefix: str, *seqs: str) -> set[bytes]:
    names = [f"{prefix}:{step}#{number}" for step in STEPS for number in range(1, 20)]
    return {f"{name}{seq}".encode() for name in names for seq in seqs}


_ATTEMPTS = _fields("l.a", "")

RECORDED_BY: Mapping[str, frozenset[bytes]] = {
    "admit reject already_committed": frozenset(_ATTEMPTS),
    "admit reject over_budget": frozenset(_ATTEMPTS),
    "chunk reject attempt_closed": frozenset(
        {b"spent"} | _ATTEMPTS | _fields("l.c", *(f":{seq}" for seq in range(1, 20)))
    ),
    "done reject already_committed": frozenset({b"reserved"} | _ATTEMPTS),
    "done reject not_durable": frozenset({b"reserved"} | _ATTEMPTS),
}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """Small limits, so that they are met."""
    return {"budget": rng.choice([0, 100, 400, 1000])}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Ledger, model)
    op = pick(rng, admit=4, chunk=12, done=4, cut=1, abandon=1, reconcile=2)
    if op == "admit" or not model.attempts:
        step = rng.choice(STEPS)
        number = 1 + max((name.number for name in model.attempts if name.step == step), default=0)
        return Call("admit", {"step": step, "attempt": number, "estimate": rng.choice([0, 20, 60, 100])})
    names = sorted(model.attempts, key=str)
    fitting = [name for name in names if (model.attempts[name].state is State.OPEN) is (op != "reconcile")]
    name = rng.choice(fitting) if fitting and rng.random() < 0.8 else rng.choice(names)
    at = model.attempts[name]
    last = max(at.chunks, default=0)
    args: dict[str, dict[str, object]] = {
        "chunk": {
            "seq": rng.choice([last + 1, last + 1, last + 2, max(last, 1), rng.randint(1, last + 1)]),
            "tokens": rng.choice([0, 7, 10, 30]),
            "durable": rng.random() < 0.7,
        },
        "done": {"last_seq": max(last, 1)},
        "reconcile": {"gateway_billed": rng.choice([at.billed, at.durable, at.billed + 5])},
    }
    return Call(op, {"step": name.step, "attempt": name.number, **args.get(op, {})})
