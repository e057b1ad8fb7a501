"""What the tests know of fence 5, histogram: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping

from bus.models import Model, Verb
from bus.models.histogram import Histogram, Status
from tests.explore import Event, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick

# --- the race: a scorer that was given up, its restart, a dirty artifact, an early and a late close


def _score(run: str, epoch: int, digest: str, bin_: str = "pass") -> Args:
    return always(run=run, epoch=epoch, digest=digest, bin=bin_, value="1")


HISTOGRAM = Scenario(
    "histogram",
    "histogram",
    {"intended": ["n1", "n2"], "quorum": 1, "bins": ["pass", "fail"], "max_in_flight": 1},
    (
        Event("a.fence", "fence", always(run="n1", epoch=1, digest="art")),
        Event("a.score", "score", _score("n1", 1, "art"), after=("a.fence",), silenced_by=("a.crash",)),
        Event("a.score again", "score", _score("n1", 1, "art"), after=("a.score",)),
        crash("a.crash"),
        Event("b.fence", "fence", always(run="n1", epoch=2, digest="art"), after=("a.fence",)),
        Event("b.score", "score", _score("n1", 2, "art", "fail"), after=("b.fence",)),
        Event("b.score of other bytes", "score", _score("n1", 2, "dirty"), after=("b.fence",)),
        Event("c.fence", "fence", always(run="n2", epoch=1, digest="art of n2")),
        Event("c.score", "score", _score("n2", 1, "art of n2"), after=("c.fence",)),
        Event("timeout of n2", "abandon", always(run="n2", epoch=0, why="never started")),
        Event("drain", "drain", always()),
        Event("close", "close", always()),
        Event("close again", "close", always(), after=("close",)),
        Event("gate", "pass_rate", always()),
    ),
    meets=frozenset(
        {
            "abandon commit",
            "close commit",
            "close duplicate",
            "close in_doubt in_flight",
            "close in_doubt not_drained",
            "fence reject backpressure",
            "fence reject after_close",
            "pass_rate commit",
            "pass_rate reject open_histogram",
            "score duplicate",
            "score reject after_close",
            "score reject digest_mismatch",
            "score reject stale_epoch",
        }
    ),
)


SCENARIOS = (HISTOGRAM,)


# --- the properties


def _snapshot_id(at: Histogram) -> str:
    bins = {name: sum(row.bin == name for row in at.rows.values()) for name in at.bins}
    rows = sorted([row.run, row.digest, row.epoch, row.bin, row.value] for row in at.rows.values())
    holes = sorted([run, why] for run, why in at.holes.items())
    parts = {
        "accepted": len(rows),
        "bins": bins,
        "holes": holes,
        "intended": len(at.intended),
        "quorum": at.quorum,
        "rows": rows,
    }
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _nothing_moves_after_the_end(step: Step) -> bool:
    before, after = as_a(Histogram, step.before), as_a(Histogram, step.after)
    if before.status not in (Status.CLOSED, Status.INCONCLUSIVE):
        return True
    return (before.status, before.rows, before.holes, before.snapshot_id) == (
        after.status,
        after.rows,
        after.holes,
        after.snapshot_id,
    )


def _no_number_before_the_close(step: Step) -> bool:
    return not committed(step, "pass_rate") or as_a(Histogram, step.before).status is Status.CLOSED


def _a_number_names_its_snapshot(step: Step) -> bool:
    at = as_a(Histogram, step.after)
    if at.status is Status.CLOSED and at.snapshot_id != _snapshot_id(at):
        return False
    if not committed(step, "pass_rate") or step.answer is None:
        return True
    passed = sum(row.bin == at.bins[0] for row in at.rows.values())
    told = {"passed": passed, "accepted": len(at.rows), "holes": len(at.holes), "snapshot_id": at.snapshot_id}
    return at.snapshot_id is not None and step.answer.fields == told


def _a_close_is_over_a_closed_set(step: Step) -> bool:
    before = as_a(Histogram, step.before)
    if not committed(step, "close"):
        return True
    accounted = before.rows.keys() | before.holes.keys() == before.intended
    return before.status is Status.DRAINED and accounted and len(before.rows) >= before.quorum


def _rows_are_the_fenced_ones(step: Step) -> bool:
    before, after = as_a(Histogram, step.before), as_a(Histogram, step.after)
    new = [row for run, row in after.rows.items() if run not in before.rows]
    fenced = all(before.epochs.get(row.run) == row.epoch and before.digests.get(row.run) == row.digest for row in new)
    return fenced and len(new) <= 1 and before.rows.items() <= after.rows.items()


def _in_flight_is_bounded(step: Step) -> bool:
    at = as_a(Histogram, step.after)
    flying = at.digests.keys() - at.rows.keys() - at.holes.keys()
    return at.in_flight == flying and len(flying) <= at.max_in_flight


def _the_batch_can_be_closed(model: Model) -> bool:
    """The planner names what is left as holes, drains and closes: a number, or an end without one."""
    at = as_a(Histogram, model)
    for run in sorted(at.intended - at.rows.keys() - at.holes.keys()):
        at.decide("abandon", {"run": run, "epoch": at.epochs.get(run, 0), "why": "lost"})
    at.decide("drain", {})
    at.decide("close", {})
    rate = at.decide("pass_rate", {})
    enough = len(at.rows) >= at.quorum
    return (rate.verb is Verb.COMMIT) if enough else (rate.reason == "below_quorum")


PROPERTIES = (
    Property("H1 after the end nothing moves", _nothing_moves_after_the_end),
    Property("H2 no number before the close", _no_number_before_the_close),
    Property("H3 a number names its snapshot", _a_number_names_its_snapshot),
    Property("H4 a close has every run and the quorum", _a_close_is_over_a_closed_set),
    Property("H5 a row is the fenced one, once", _rows_are_the_fenced_ones),
    Property("H6 in flight is bounded", _in_flight_is_bounded),
    Property("L1 the batch can be closed", live=_the_batch_can_be_closed),
)


BREAKS: Mapping[str, str] = {
    "mutable_mean": "H2 no number before the close",
    "quorum_without_digest": "H5 a row is the fenced one, once",
    "close_without_drain": "H4 a close has every run and the quorum",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {
    "fence digest_mismatch": {"proposals"},
    "score digest_mismatch": {"proposals"},
    "close below_quorum": {"status"},
}
"""Refusal → the parts of the state that it may change."""

RECORDED_BY: Mapping[str, frozenset[bytes]] = {
    "close reject below_quorum": frozenset({b"status"}),
}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """Small limits, so that they are met."""
    return {
        "intended": ["n1", "n2", "n3"],
        "quorum": rng.randint(1, 3),
        "bins": ["pass", "fail"],
        "max_in_flight": rng.randint(1, 3),
    }


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Histogram, model)
    run = rng.choice([*sorted(model.intended), "stranger"] if rng.random() < 0.2 else sorted(model.intended))
    epoch = model.epochs.get(run, 0)
    digest = model.digests.get(run, f"art-{run}")
    op = pick(rng, fence=5, score=6, abandon=2, drain=1, close=1, pass_rate=1)
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
