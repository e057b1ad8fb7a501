"""What the tests know of fence 6, judge: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bus.models import Model, Verb
from bus.models.judge import Judge
from tests.explore import Event, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick, text_of

# --- the race: the pool swaps the critic, an operator binds anew, the old token comes late


def _sign(candidate: str, judge: str, epoch: int, digest: str) -> Args:
    return always(run="n3", observed_candidate=candidate, observed_judge=judge, epoch=epoch, score_digest=digest)


def _judge(policy: str, *meets: str) -> Scenario:
    return Scenario(
        f"judge under {policy}",
        "judge",
        {"policy": policy, "replay_budget": 1},
        (
            Event("mint", "mint", always(run="n3", candidate="ca", judge="ja", epoch=1)),
            Event("mint again", "mint", always(run="n3", candidate="ca", judge="ja", epoch=1), after=("mint",)),
            Event("a.sign", "commit", _sign("ca", "ja", 1, "d1"), after=("mint",), silenced_by=("a.crash",)),
            Event("a.sign again", "commit", _sign("ca", "ja", 1, "d1"), after=("a.sign",)),
            crash("a.crash"),
            Event("swapped judge", "commit", _sign("ca", "jb", 1, "d1")),
            Event("swapped judge again", "commit", _sign("ca", "jb", 1, "d1"), after=("swapped judge",)),
            Event("other candidate", "commit", _sign("cb", "ja", 1, "d1")),
            Event("no echo", "commit", _sign("ca", "", 1, "d1")),
            Event("timeout: rebind", "rebind", always(run="n3", epoch=1, candidate="ca", judge="jb")),
            Event("b.sign", "commit", _sign("ca", "jb", 2, "d2"), after=("timeout: rebind",)),
            Event("b.sign of another judge", "commit", _sign("ca", "jc", 2, "d2"), after=("timeout: rebind",)),
            Event("second digest", "commit", _sign("ca", "ja", 1, "d2")),
        ),
        meets=frozenset(
            {
                "commit commit",
                "commit duplicate",
                "commit reject already_scored",
                "commit reject judge_mismatch",
                "commit reject candidate_mismatch",
                "commit reject stale_epoch",
                "commit reject unbound",
                "mint reject already_bound",
                "rebind commit",
                "rebind reject already_scored",
                "rebind reject unbound",
                *meets,
            }
        ),
    )


SCENARIOS = (
    _judge("reject"),
    _judge("replay", "commit replay judge_mismatch", "commit replay candidate_mismatch"),
    _judge("review", "commit in_doubt judge_mismatch", "commit in_doubt candidate_mismatch"),
)


# --- the properties


def _rows_equal_their_tokens(step: Step) -> bool:
    at = as_a(Judge, step.after)
    tokens = {run: (token.candidate, token.judge, token.epoch) for run, token in at.tokens.items()}
    return all((row.candidate, row.judge, row.epoch) == tokens.get(run) for run, row in at.rows.items())


def _rows_stay(step: Step) -> bool:
    before, after = as_a(Judge, step.before), as_a(Judge, step.after)
    return before.rows.items() <= after.rows.items()


def _tombstones_never_sign(step: Step) -> bool:
    tombstones = as_a(Judge, step.before).tombstones
    return not committed(step, "commit") or step.call.args["epoch"] not in tombstones.get(text_of(step, "run"), [])


def _replays_are_bounded(step: Step) -> bool:
    at = as_a(Judge, step.after)
    return at.replays <= (at.replay_budget if at.policy == "replay" else 0)


def _only_the_unscored_wait(step: Step) -> bool:
    at = as_a(Judge, step.after)
    return not at.review & at.rows.keys() and (at.policy == "review" or not at.review)


def _every_run_can_be_scored(model: Model) -> bool:
    """Whatever came, an operator can bind a fresh pair, and that pair signs."""
    at = as_a(Judge, model)
    for run in [run for run in at.tokens if run not in at.rows]:
        pair = {"candidate": "fresh", "judge": "fresh"}
        bound = at.decide("rebind", {"run": run, "epoch": at.tokens[run].epoch, **pair})
        observed = {"observed_candidate": "fresh", "observed_judge": "fresh", "score_digest": "d"}
        signed = at.decide("commit", {"run": run, "epoch": bound.fields.get("epoch"), **observed})
        if signed.verb is not Verb.COMMIT:
            return False
    return True


PROPERTIES = (
    Property("J1 each row equals its token", _rows_equal_their_tokens),
    Property("J2 a row never changes", _rows_stay),
    Property("J3 a tombstoned epoch never signs", _tombstones_never_sign),
    Property("J4 replays stay within the budget", _replays_are_bounded),
    Property("J5 only unscored runs wait for review", _only_the_unscored_wait),
    Property("L1 every run can be scored", live=_every_run_can_be_scored),
)


BREAKS: Mapping[str, str] = {
    "sticky_routing": "J1 each row equals its token",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {
    "commit judge_mismatch": {"review", "replays"},
    "commit candidate_mismatch": {"review", "replays"},
}
"""Refusal → the parts of the state that it may change."""

RECORDED_BY: Mapping[str, frozenset[bytes]] = {
    "commit replay judge_mismatch": frozenset({b"j.replayed", b"replays"}),
    "commit replay candidate_mismatch": frozenset({b"j.replayed", b"replays"}),
    "commit in_doubt judge_mismatch": frozenset({b"j.review"}),
    "commit in_doubt candidate_mismatch": frozenset({b"j.review"}),
}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """Small limits, so that they are met."""
    return {"policy": rng.choice(["reject", "replay", "review"]), "replay_budget": rng.randint(0, 2)}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Judge, model)
    run = rng.choice(["n1", "n2", "n3"])
    candidate, judge = rng.choice(["ca", "cb"]), rng.choice(["ja", "jb"])
    bound = model.tokens.get(run)
    epoch = bound.epoch if bound else 1
    routed = rng.random() < 0.6  # to the pair that was bound
    op = pick(rng, mint=2, rebind=2, commit=5)
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
