"""What the tests know of fence 3, indoubt: its races, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bus.models import Model, Verb
from bus.models.indoubt import InDoubt, Outcome, Pair, Ref
from bus.vector_file import CLOCK
from tests.explore import Event, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick, text_of

# --- the races: a call outlives its client's patience, a slot changes hands


def _call(run: str = "n3", key: str = "k1", epoch: int = 1, **more: object) -> Args:
    return always(run=run, key=key, epoch=epoch, **more)


def _reserve(lease_id: str, slot: str = "gpu", run: str = "n3", key: str = "k1", epoch: int = 1) -> Args:
    return _call(run, key, epoch, slot=slot, ttl_ms=1000, lease_id=lease_id)


TIMEOUT = Scenario(
    "indoubt, a call outlives its client's patience",
    "indoubt",
    {},
    (
        Event("a.reserve", "reserve", _reserve("la")),
        Event("a.reserve again", "reserve", _reserve("la"), after=("a.reserve",)),
        Event("a.prepare", "prepare", _call(lease_id="la"), after=("a.reserve",), silenced_by=("a.crash",)),
        Event("a.prepare, second delivery", "prepare", _call(lease_id="la"), after=("a.prepare",)),
        Event("a.bind", "bind", _call(lease_id="la", result="done"), after=("a.reserve",)),
        Event("a.bind again", "bind", _call(lease_id="la", result="done"), after=("a.bind",)),
        crash("a.crash"),
        Event("impostor binds", "bind", _call(lease_id="forged", result="forged"), after=("a.reserve",)),
        Event("time passes", CLOCK, always(advance_ms=1000)),
        Event("recover", "recover", _call()),
        Event("recover again", "recover", _call(), after=("recover",)),
        Event("b.reserve", "reserve", _reserve("lb", "cpu")),
        Event("b.prepare", "prepare", lambda k: {**_of(k["b.reserve"])}, after=("b.reserve",)),
        Event("b.bind", "bind", lambda k: {**_of(k["b.reserve"]), "result": "done by b"}, after=("b.prepare",)),
    ),
    meets=frozenset(
        {
            "bind duplicate",
            "bind reject already_decided",
            "bind reject lease_expired",
            "bind reject lease_mismatch",
            "bind reject not_prepared",
            "prepare in_doubt already_prepared",
            "prepare reject already_decided",
            "prepare reject lease_expired",
            "recover commit",
            "recover compensate",
            "recover in_doubt lease_live",
            "recover reject never_started",
            "reserve duplicate",
            "reserve in_doubt recover_first",
        }
    ),
)


def _of(granted: Mapping[str, object]) -> dict[str, object]:
    """What a holder quotes of what it was told."""
    return {"run": "n3", "key": "k1", "epoch": 1, "lease_id": granted["lease_id"]}


RECYCLED = Scenario(
    "indoubt, a slot and a conversation change hands",
    "indoubt",
    {},
    (
        Event("a.reserve", "reserve", _reserve("la")),
        Event("a.prepare", "prepare", _call(lease_id="la"), after=("a.reserve",), silenced_by=("a.crash",)),
        Event("a.bind", "bind", _call(lease_id="la", result="done"), after=("a.prepare",)),
        crash("a.crash"),
        Event("turn", "turn", always(run="n3", epoch=2)),
        Event("turn again", "turn", always(run="n3", epoch=2), after=("turn",)),
        Event("late turn", "turn", always(run="n3", epoch=1), after=("turn again",)),
        Event("time passes", CLOCK, always(advance_ms=1000)),
        Event("recover", "recover", _call()),
        Event("recover what never was", "recover", _call(key="k2"), after=("recover",)),
        Event("c.reserve", "reserve", _reserve("lc", run="n4", key="k9")),
        Event("c.prepare", "prepare", _call("n4", "k9", lease_id="lc"), after=("c.reserve",)),
        Event("c.bind", "bind", _call("n4", "k9", lease_id="lc", result="done"), after=("c.prepare",)),
        Event("b.reserve", "reserve", _reserve("lb", epoch=2), after=("turn",)),
    ),
    meets=frozenset(
        {
            "bind reject stale_epoch",
            "prepare reject stale_epoch",
            "reserve reject already_decided",
            "reserve reject slot_busy",
            "reserve reject stale_epoch",
            "turn commit",
            "turn duplicate",
            "turn reject stale_epoch",
        }
    ),
)


SCENARIOS = (
    TIMEOUT,
    RECYCLED,
)


# --- the properties


def _pairs(model: Model) -> Mapping[Ref, Pair]:
    return as_a(InDoubt, model).pairs


def _ref(step: Step) -> Ref:
    epoch = step.call.args["epoch"]
    assert isinstance(epoch, int)
    return Ref(text_of(step, "run"), text_of(step, "key"), epoch)


def _an_effect_starts_once(step: Step) -> bool:
    """Once prepared, a pair is never reserved anew and never prepared again."""
    if not committed(step, "prepare", "reserve"):
        return True
    return _pairs(step.before).get(_ref(step), Pair()).outcome is Outcome.NONE


def _decided_stays_decided(step: Step) -> bool:
    before, after = _pairs(step.before), _pairs(step.after)
    final = {ref: (at.outcome, at.result) for ref, at in before.items() if at.decided}
    return all((after[ref].outcome, after[ref].result) == known for ref, known in final.items())


def _decided_by_whom(step: Step) -> bool:
    before, after = as_a(InDoubt, step.before), _pairs(step.after)
    for ref, at in after.items():
        was = before.pairs.get(ref, Pair())
        if not at.decided or was.decided:
            continue
        if ref != _ref(step):
            return False
        if at.outcome is Outcome.REJECT:
            if step.call.op != "recover" or before.live(was):
                return False
        elif not committed(step, "bind") or not before.live(was) or was.lease_id != step.call.args["lease_id"]:
            return False
    return True


def _told_over_is_over(step: Step) -> bool:
    if step.answer is None or step.call.op != "recover":
        return True
    if step.answer.verb is Verb.COMPENSATE or step.answer.reason == "never_started":
        return _pairs(step.after).get(_ref(step), Pair()).outcome is Outcome.REJECT
    return True


def _nothing_across_epochs(step: Step) -> bool:
    before, after = as_a(InDoubt, step.before), as_a(InDoubt, step.after)
    if any(after.epochs.get(run, -1) < epoch for run, epoch in before.epochs.items()):
        return False
    if not committed(step, "turn", "reserve", "prepare", "bind"):
        return before.epochs == after.epochs
    epoch = step.call.args["epoch"]
    assert isinstance(epoch, int)
    return epoch >= before.epochs.get(text_of(step, "run"), 0) and after.epochs[text_of(step, "run")] == epoch


def _one_live_reservation_a_slot(step: Step) -> bool:
    at = as_a(InDoubt, step.after)
    held = [pair.slot for pair in at.pairs.values() if not pair.decided and at.now_ms < pair.since_ms + pair.ttl_ms]
    return len(held) == len(set(held))


def _undone_is_what_may_have_started(step: Step) -> bool:
    before, after = as_a(InDoubt, step.before), as_a(InDoubt, step.after)
    ordered = after.compensations - before.compensations
    compensates = step.answer is not None and step.answer.verb is Verb.COMPENSATE
    if not compensates or step.answer is None:
        told_never = step.answer is not None and step.answer.reason == "never_started"
        was = before.pairs.get(_ref(step), Pair()) if told_never else Pair()
        return not ordered and was.outcome is not Outcome.PREPARED
    ref = _ref(step)
    started = ref in before.compensations or before.pairs[ref].outcome is Outcome.PREPARED
    return started and ordered <= {ref} and step.answer.fields == {"undo_id": f"{ref.key}~undo"}


def _let_all_run_out(at: InDoubt) -> None:
    at.elapse(max((pair.ttl_ms for pair in at.pairs.values()), default=0))


def _every_call_can_be_decided(model: Model) -> bool:
    at = as_a(InDoubt, model)
    _let_all_run_out(at)
    for ref in list(at.pairs):
        at.decide("recover", {"run": ref.run, "key": ref.key, "epoch": ref.epoch})
    return all(pair.decided for pair in at.pairs.values())


def _every_slot_comes_free(model: Model) -> bool:
    at = as_a(InDoubt, model)
    _let_all_run_out(at)
    for slot in sorted({pair.slot for pair in at.pairs.values() if pair.slot}):
        args = {
            "run": "next in line",
            "slot": slot,
            "key": slot,
            "epoch": 0,
            "ttl_ms": 1,
            "lease_id": f"next on {slot}",
        }
        if at.decide("reserve", args).verb is not Verb.COMMIT:
            return False
    return True


PROPERTIES = (
    Property("P1 an effect starts at most once a pair", _an_effect_starts_once),
    Property("P2 what is decided stays decided", _decided_stays_decided),
    Property("P3 a pair is committed by its live lease, rejected by a recover", _decided_by_whom),
    Property("P4 what is told to be over is over", _told_over_is_over),
    Property("P5 nothing is granted across epochs", _nothing_across_epochs),
    Property("P6 a slot has one live reservation", _one_live_reservation_a_slot),
    Property("P7 an undo is for what may have started", _undone_is_what_may_have_started),
    Property("L1 every call can be decided", live=_every_call_can_be_decided),
    Property("L2 every slot comes free", live=_every_slot_comes_free),
)


BREAKS: Mapping[str, str] = {
    "blind_replay": "P1 an effect starts at most once a pair",
    "impostor_decides": "P3 a pair is committed by its live lease, rejected by a recover",
    "recover_without_tombstone": "P4 what is told to be over is over",
    "second_prepare_starts": "P1 an effect starts at most once a pair",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {
    "recover never_started": {"outcomes"},
}
"""Refusal → the parts of the state that it may change."""

RUNS, KEYS, SLOTS = ("n1", "n2"), ("k1", "k2"), ("gpu", "cpu")

TOMBSTONES = frozenset(f"i.p:{epoch}:{key}".encode() for epoch in range(40) for key in KEYS)

RECORDED_BY: Mapping[str, frozenset[bytes]] = {
    "recover reject never_started": TOMBSTONES,
    "recover compensate": TOMBSTONES,
}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """It has none."""
    return {}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(InDoubt, model)
    known = sorted(model.pairs, key=str)
    run = rng.choice(RUNS)
    now = model.epochs.get(run, 0)
    ref = Ref(run, rng.choice(KEYS), rng.choice([now, now, now + 1]))
    if known and rng.random() < 0.7:
        ref = rng.choice(known)
    at = model.pairs.get(ref) or Pair()
    call = {"run": ref.run, "key": ref.key, "epoch": ref.epoch}
    holder = {**call, "lease_id": at.lease_id or "none"}
    lease_id = f"{rng.getrandbits(128):032x}" if rng.random() < 0.8 else rng.choice([*sorted(at.granted), "a:b"])
    op = pick(rng, turn=1, reserve=5, prepare=4, bind=4, recover=3, clock=2)
    args: dict[str, dict[str, object]] = {
        "turn": {"run": run, "epoch": rng.choice([now, now + 1])},
        "reserve": {**call, "slot": rng.choice(SLOTS), "ttl_ms": rng.choice([50, 100]), "lease_id": lease_id},
        "prepare": holder,
        "bind": {**holder, "result": rng.choice(["done", "done", "é☃"])},
        "recover": call,
        CLOCK: {"advance_ms": rng.choice([1, 49, 50, 99])},
    }
    return Call(op, args[op])
