"""What the tests know of fence 12, join: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence

from bus.models import Model, Verb
from bus.models.join import Case, Join, State
from bus.vector_file import CLOCK
from tests.explore import Event, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick, text_of

# --- the race: attempts that come twice, late, for another window or not at all, and two coordinators


def _window(case: str, expected: Sequence[str], epoch: int) -> str:
    text = json.dumps([case, sorted(set(expected)), epoch], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


WINDOW, OLD_WINDOW = (_window("case-a", ["grep", "ls"], epoch) for epoch in (1, 0))


def _result(attempt: str, tokens: int, *, window: str = WINDOW, ok: bool = True) -> Args:
    return always(case="case-a", attempt=attempt, window=window, tokens=tokens, ok=ok)


FAN_OUT = Scenario(
    "join, a fan-out of two attempts",
    "join",
    {"budget": 100, "budget_epoch": 1},
    (
        Event("admit", "admit", always(case="case-a", expected=["grep", "ls"], window_cost=40)),
        Event(
            "admit by a restarted coordinator",
            "admit",
            always(case="case-a", expected=["ls", "grep", "ls"], window_cost=40),
        ),
        Event(
            "admit of another set", "admit", always(case="case-a", expected=["cat"], window_cost=40), after=("admit",)
        ),
        Event("ls", "result", _result("ls", 10), after=("admit",), silenced_by=("crash",)),
        Event("ls again", "result", _result("ls", 10), after=("ls",)),
        Event("grep", "result", _result("grep", 10, ok=False), after=("admit",)),
        Event("grep, far too long", "result", _result("grep", 41), after=("admit",)),
        Event("grep of an older window", "result", _result("grep", 10, window=OLD_WINDOW)),
        Event("rm, which nobody asked", "result", _result("rm", 1)),
        crash("crash"),
        Event("timeout", "expire", always(case="case-a"), after=("admit",)),
        Event("commit", "commit", always(case="case-a", verdict="pass"), after=("admit",)),
        Event("commit again", "commit", always(case="case-a", verdict="pass"), after=("commit",)),
        Event("commit by another coordinator", "commit", always(case="case-a", verdict="fail")),
        Event("next case", "admit", always(case="case-b", expected=["cat"], window_cost=61)),
    ),
    meets=frozenset(
        {
            "admit duplicate",
            "admit reject case_closed",
            "admit reject expected_mismatch",
            "admit reject over_budget",
            "commit commit",
            "commit duplicate",
            "commit reject already_committed",
            "commit reject not_joined",
            "expire commit",
            "expire reject not_open",
            "result reject duplicate_attempt",
            "result reject late",
            "result reject unknown_attempt",
            "result reject unknown_case",
            "result reject window_exhausted",
            "result reject window_mismatch",
        }
    ),
)

SCENARIOS = (FAN_OUT,)


# --- the properties


def _ended(at: Case) -> bool:
    return at.state in (State.COMMITTED, State.ABORTED)


def _what_has_ended_stays(step: Step) -> bool:
    before, after = as_a(Join, step.before), as_a(Join, step.after)
    return all(after.cases[case] == at for case, at in before.cases.items() if _ended(at))


def _refused_spends_nothing(step: Step) -> bool:
    if step.call.op != "result" or committed(step, "result"):
        return True
    before, after = as_a(Join, step.before), as_a(Join, step.after)
    joined = {case: dict(at.joined) for case, at in before.cases.items()}
    return before.remaining == after.remaining and joined == {case: at.joined for case, at in after.cases.items()}


def _aborted_is_inconclusive(step: Step) -> bool:
    at = as_a(Join, step.after)
    return all(case.verdict == "inconclusive" for case in at.cases.values() if case.state is State.ABORTED)


def _the_budget_adds_up(step: Step) -> bool:
    at = as_a(Join, step.after)
    held = sum(case.spent if case.state is State.COMMITTED else case.cost for case in at.cases.values())
    within = all(sum(case.joined.values()) <= case.cost for case in at.cases.values())
    return at.remaining + held == at.budget and at.remaining >= 0 and within


def _a_verdict_waits_for_all(step: Step) -> bool:
    at = as_a(Join, step.after)
    decided = (case for case in at.cases.values() if case.state in (State.JOINED, State.COMMITTED))
    return all(sorted(case.joined) == sorted(case.expected) != [] for case in decided)


def _into_its_own_window(step: Step) -> bool:
    if not committed(step, "result"):
        return True
    before, case = as_a(Join, step.before), text_of(step, "case")
    return step.call.args["window"] == _window(case, before.cases[case].expected, before.budget_epoch)


def _every_case_can_end(model: Model) -> bool:
    """Whoever finds a case commits it when it has joined, and expires it else."""
    at = as_a(Join, model)
    for case, standing in list(at.cases.items()):
        if standing.state is State.JOINED and at.decide("commit", {"case": case, "verdict": "pass"}).refused:
            return False
        if standing.state is State.OPEN and at.decide("expire", {"case": case}).verb is not Verb.COMMIT:
            return False
    return all(_ended(standing) for standing in at.cases.values())


PROPERTIES = (
    Property("P1 a case that has ended stays as it ended", _what_has_ended_stays),
    Property("P2 a refused result spends nothing", _refused_spends_nothing),
    Property("P3 an aborted case is inconclusive", _aborted_is_inconclusive),
    Property("P4 the budget adds up", _the_budget_adds_up),
    Property("P5 a verdict waits for every attempt", _a_verdict_waits_for_all),
    Property("P6 a result joins its own window", _into_its_own_window),
    Property("L1 every case can be brought to its end", live=_every_case_can_end),
)


BREAKS: Mapping[str, str] = {
    "key_on_case_only": "P6 a result joins its own window",
    "commit_on_first_result": "P5 a verdict waits for every attempt",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {
    "admit over_budget": {"cases"},
    "result window_exhausted": {"cases"},
}
"""Refusal → the parts of the state that it may change."""

CASES = ("c1", "c2", "é:☃")

RECORDED_BY: Mapping[str, frozenset[bytes]] = {
    outcome: frozenset(f"f.c:{case}".encode() for case in CASES)
    for outcome in ("admit reject over_budget", "result reject window_exhausted")
}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls

SETS = (["ls"], ["grep", "ls"], ["ls", "grep", "ls"], ["grep", "ls", "a:b"])


def config(rng: random.Random) -> dict[str, object]:
    """Small limits, so that they are met."""
    return {"budget": rng.choice([0, 30, 60]), "budget_epoch": rng.randint(0, 2)}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Join, model)
    case = rng.choice(CASES)
    at = model.cases.get(case) or Case(State.OPEN, ("ls",), "no window")
    missing = [attempt for attempt in at.expected if attempt not in at.joined]
    op = pick(rng, admit=3, result=6, commit=3, expire=1, clock=1)
    args: dict[str, dict[str, object]] = {
        "admit": {"case": case, "expected": rng.choice(SETS), "window_cost": rng.choice([0, 10, 20, 31])},
        "result": {
            "case": case,
            "attempt": rng.choice(missing or list(at.expected) or ["ls"]),
            "window": at.window or "no window",
            "tokens": rng.choice([0, 1, 5, 11]),
            "ok": rng.random() < 0.8,
        },
        "commit": {"case": case, "verdict": rng.choice(["pass", "pass", "fail"])},
        "expire": {"case": case},
        CLOCK: {"advance_ms": 1},
    }
    return Call(op, args[op])
