"""What the tests know of fence 1, plane: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bus.models import Model, Verb
from bus.models.plane import Admission, Plane
from bus.vector_file import CLOCK
from tests.explore import Event, Kept, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick, text_of

# --- the race: a worker stalls, its slot is taken from it, and it wakes up with a live key in its hand

SHADOW, LIVE = "shadow:n3:pay", "live:n3:pay"


def _with(who: str, **more: object) -> Args:
    def args(kept: Kept) -> Mapping[str, object]:
        return {"admission": kept[f"{who}.admit"]["admission"], **more}

    return args


def _plane_before(key: str) -> str:
    return key.split(":", maxsplit=1)[0]


SMUGGLED = Scenario(
    "plane, a stalled worker and a live key",
    "plane",
    {"capacity": 1},
    (
        Event("a.admit", "admit", always(key=SHADOW, plane="shadow", admission="a" * 32)),
        Event("a.admit again", "admit", always(key=SHADOW, plane="shadow", admission="a" * 32), after=("a.admit",)),
        Event(
            "a.write",
            "write",
            _with("a", key=SHADOW, plane="shadow", body="eur 5"),
            after=("a.admit",),
            silenced_by=("a.crash",),
        ),
        Event("a.write by its twin", "write", _with("a", key=SHADOW, plane="shadow", body="eur 6"), after=("a.admit",)),
        Event("a.write of a live key", "write", _with("a", key=LIVE, plane="live", body="eur 5"), after=("a.admit",)),
        Event("a.write, live header", "write", _with("a", key=SHADOW, plane="live", body="eur 5"), after=("a.admit",)),
        Event("a.release", "release", _with("a"), after=("a.write",), silenced_by=("a.crash",)),
        crash("a.crash"),
        Event("timeout", "release", _with("a"), after=("a.admit",)),
        Event("b.admit", "admit", always(key=SHADOW, plane="shadow", admission="b" * 32)),
        Event("b.write", "write", _with("b", key=SHADOW, plane="shadow", body="eur 7"), after=("b.admit",)),
        Event("l.admit", "admit", always(key=LIVE, plane="live", admission="l" * 32)),
        Event("l.write", "write", _with("l", key=LIVE, plane="live", body="eur 5"), after=("l.admit",)),
        Event("c.admit", "admit", always(key="shadow:n4:pay", plane="shadow", admission="c" * 32)),
    ),
    meets=frozenset(
        {
            "admit duplicate",
            "admit reject capacity",
            "admit reject duplicate_key",
            "release duplicate",
            "write commit",
            "write reject duplicate_key",
            "write reject not_admitted",
            "write reject plane_header",
            "write reject plane_key",
        }
    ),
)

UNDONE = Scenario(
    "plane, a timeout queues an undo",
    "plane",
    {"capacity": 1},
    (
        Event("key", "rewrite", always(run="n3", step="pay")),
        Event(
            "a.admit",
            "admit",
            lambda k: {"key": k["key"]["key"], "plane": "shadow", "admission": "a" * 32},
            after=("key",),
        ),
        Event(
            "a.write",
            "write",
            _with("a", key=SHADOW, plane="shadow", body="eur 5"),
            after=("a.admit",),
            silenced_by=("a.crash",),
        ),
        crash("a.crash"),
        Event("timeout", "release", _with("a"), after=("a.admit",)),
        Event("a.undo", "undo", _with("a", key=SHADOW, plane="shadow"), after=("a.admit",)),
        Event("a.undo again", "undo", _with("a", key=SHADOW, plane="shadow"), after=("a.undo",)),
        Event("a.undo of a live key", "undo", _with("a", key=LIVE, plane="live"), after=("a.admit",)),
        Event("a.undo, live header", "undo", _with("a", key=SHADOW, plane="live"), after=("a.admit",)),
        Event("l.admit", "admit", always(key=LIVE, plane="live", admission="l" * 32)),
        Event("l.write", "write", _with("l", key=LIVE, plane="live", body="eur 5"), after=("l.admit",)),
        Event("l.undo", "undo", _with("l", key=LIVE, plane="live"), after=("l.admit",)),
    ),
    meets=frozenset(
        {
            "release commit",
            "rewrite commit",
            "undo commit",
            "undo duplicate",
            "undo reject not_written",
            "undo reject plane_header",
            "undo reject plane_key",
        }
    ),
)

SCENARIOS = (SMUGGLED, UNDONE)


# --- the properties


def _by_its_own_admission(step: Step) -> bool:
    before, after = as_a(Plane, step.before), as_a(Plane, step.after)
    for key in after.rows.keys() - before.rows.keys():
        granted = before.admissions.get(text_of(step, "admission"))
        if granted is None or granted.released or granted.key != key or granted.plane != _plane_before(key):
            return False
    return True


def _written_once(step: Step) -> bool:
    before, after = as_a(Plane, step.before), as_a(Plane, step.after)
    grown = len(after.rows) - len(before.rows)
    return before.rows.items() <= after.rows.items() and grown == committed(step, "write")


def _within_the_capacity(step: Step) -> bool:
    at = as_a(Plane, step.after)
    held = sum(not one.released for one in at.admissions.values() if one.plane == "shadow")
    return at.state()["in_flight"] == held <= at.capacity


def _crossed_is_kept(step: Step) -> bool:
    before, after = as_a(Plane, step.before), as_a(Plane, step.after)
    expected = {plane: list(keys) for plane, keys in before.crossed.items()}
    if step.call.op in ("write", "undo") and step.answer is not None and step.answer.reason != "schema":
        granted = before.admissions.get(text_of(step, "admission"))
        key = text_of(step, "key")
        if granted is not None and {_plane_before(key), step.call.args["plane"]} != {granted.plane}:
            expected[granted.plane].append(key)
            if step.answer.verb is not Verb.REJECT:
                return False
    return after.crossed == expected


def _undone_on_its_plane(step: Step) -> bool:
    before, after = as_a(Plane, step.before), as_a(Plane, step.after)
    for plane, keys in after.undone.items():
        if not all(_plane_before(key) == plane and key in after.rows for key in keys) or len(set(keys)) != len(keys):
            return False
    grown = sum(map(len, after.undone.values())) - sum(map(len, before.undone.values()))
    return grown == committed(step, "undo")


def _one_in_flight_a_key(step: Step) -> bool:
    at = as_a(Plane, step.after)
    held = [one.key for one in at.admissions.values() if not one.released]
    return len(held) == len(set(held))


def _nothing_is_stuck(model: Model) -> bool:
    """Whoever ends the runs releases what is held; then each key that was never written is admitted and written."""
    at = as_a(Plane, model)
    for admission in list(at.admissions):
        at.decide("release", {"admission": admission})
    if at.state()["in_flight"] != 0:
        return False
    keys = {one.key for one in at.admissions.values()} - at.rows.keys()
    for key in sorted(keys):
        who = {"admission": f"successor for {key}", "key": key, "plane": _plane_before(key)}
        for op, args in (("admit", who), ("write", {**who, "body": "b"}), ("release", {"admission": who["admission"]})):
            if at.decide(op, args).verb is not Verb.COMMIT:
                return at.capacity == 0
    return True


PROPERTIES = (
    Property("P1 no key is written by another plane's admission", _by_its_own_admission),
    Property("P2 a key is written once", _written_once),
    Property("P3 the shadow plane stays within its capacity", _within_the_capacity),
    Property("P4 what crossed is refused and kept with its raw key", _crossed_is_kept),
    Property("P5 an inverse stands on its own plane, once", _undone_on_its_plane),
    Property("P6 a key has one admission in flight", _one_in_flight_a_key),
    Property("L1 every slot comes back and every key can be written", live=_nothing_is_stuck),
)


BREAKS: Mapping[str, str] = {
    "shared_key": "P1 no key is written by another plane's admission",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {
    "write plane_key": {"crossed"},
    "write plane_header": {"crossed"},
    "undo plane_key": {"crossed"},
    "undo plane_header": {"crossed"},
}
"""Refusal → the parts of the state that it may change."""

RECORDED_BY: Mapping[str, frozenset[bytes]] = {}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls

KEYS = tuple(f"{plane}:{run}:{step}" for plane in ("live", "shadow") for run in ("n1", "n2") for step in ("pay", "é/☃"))
NO_KEYS = ("shadow", "live:n1", "shadow::pay", "shadow:n1:pay:more", "stage:n1:pay", ":n1:pay")


def config(rng: random.Random) -> dict[str, object]:
    """Small limits, so that they are met."""
    return {"capacity": rng.randint(0, 3)}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Plane, model)
    held = [name for name, one in sorted(model.admissions.items()) if not one.released]
    pool = held if held and rng.random() < 0.8 else sorted(model.admissions)
    admission = rng.choice(pool) if pool else "nobody"
    own = model.admissions.get(admission) or Admission("shadow:n1:pay", "shadow")
    key = rng.choice(KEYS if rng.random() < 0.9 else NO_KEYS)
    op = pick(rng, rewrite=1, admit=5, write=4, undo=3, release=2, clock=1)
    args: dict[str, dict[str, object]] = {
        "rewrite": {"run": rng.choice(["n1", "n2", "n:1"]), "step": rng.choice(["pay", "pay", "pay", "a:b"])},
        "admit": {"key": key, "plane": _plane_before(key), "admission": f"{rng.getrandbits(128):032x}"},
        "write": {"admission": admission, "key": own.key, "plane": own.plane, "body": rng.choice(["eur 5", "eur 6"])},
        "undo": {"admission": admission, "key": own.key, "plane": own.plane},
        "release": {"admission": admission},
        CLOCK: {"advance_ms": 1},
    }
    return Call(op, args[op])
