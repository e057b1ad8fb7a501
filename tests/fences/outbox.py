"""What the tests know of fence 2, outbox: its races, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bus.models import Model, Verb
from bus.models.outbox import UNDO, Intent, Outbox, State, undone_by
from bus.vector_file import CLOCK
from tests.explore import Event, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick, text_of

# --- the races: a worker dies, its planner gives up, an undo fares no better

INTENT = "n3/step-2/call-0"
JOB: Mapping[str, object] = {"tool": "book_room", "args": {"room": "blue", "day": 4}}
CONFIG: Mapping[str, object] = {"ack_bound_ms": 1000, "inverses": {"book_room": "cancel_room"}}


def _by(executor: str, intent_id: str = INTENT, **more: object) -> Args:
    return always(intent_id=intent_id, gen=0, executor=executor, **more)


def _done(executor: str, intent_id: str = INTENT, **more: object) -> Args:
    told: dict[str, object] = {"ok": True, "echo": intent_id, "observation": f"told {executor}"}
    return _by(executor, intent_id, **(told | more))


def _under_the_next_gen(executor: str, **more: object) -> Args:
    return lambda k: {"intent_id": INTENT, "gen": k["advance"]["gen"], "executor": executor, **more}


WORKER_DIES = Scenario(
    "outbox, a worker dies around its call",
    "outbox",
    CONFIG,
    (
        Event("put", "put", always(intent_id=INTENT, gen=0, **JOB)),
        Event("put again", "put", always(intent_id=INTENT, gen=0, **JOB), after=("put",)),
        Event("a.claim", "claim", _by("a"), after=("put",)),
        Event("a.claim again", "claim", _by("a"), after=("a.claim",)),
        Event("a.sent", "sent", _by("a"), after=("a.claim",), silenced_by=("a.crash",)),
        Event("a.done", "complete", _done("a"), after=("a.sent",)),
        crash("a.crash"),
        Event("recover", "recover", always(intent_id=INTENT), after=("put",)),
        Event("b.claim", "claim", _by("b"), after=("put",)),
        Event("b.sent", "sent", _by("b"), after=("b.claim",)),
        Event("b.done", "complete", _done("b", ok=False, echo=None), after=("b.sent",)),
        Event("time passes", CLOCK, always(advance_ms=1000)),
        Event("recover again", "recover", always(intent_id=INTENT), after=("recover",)),
        Event("undo.claim", "claim", _by("u", INTENT + UNDO), after=("recover again",)),
        Event("undo.done", "complete", _done("u", INTENT + UNDO), after=("undo.claim",)),
    ),
    meets=frozenset(
        {
            "claim duplicate",
            "claim reject executor_reused",
            "claim reject not_queued",
            "claim reject unknown_intent",
            "complete commit",
            "complete reject already_final",
            "complete reject not_claimed",
            "put duplicate",
            "recover commit",
            "recover compensate",
            "recover duplicate",
            "recover in_doubt awaiting_ack",
            "sent reject not_claimed",
        }
    ),
)

PLANNER_GIVES_UP = Scenario(
    "outbox, a planner gives up what cannot be undone",
    "outbox",
    {"ack_bound_ms": 1000, "inverses": {}},
    (
        Event("put", "put", always(intent_id=INTENT, gen=0, **JOB)),
        Event("fresh sample", "put", always(intent_id=INTENT, gen=0, tool="book_room", args={"room": "red"})),
        Event("a.claim", "claim", _by("a"), after=("put",)),
        Event("a.sent", "sent", _by("a"), after=("a.claim",), silenced_by=("a.crash",)),
        Event("a.sent again", "sent", _by("a"), after=("a.sent",)),
        Event("a.done, no echo", "complete", _done("a", echo=None), after=("a.claim",)),
        Event("a.done", "complete", _done("a"), after=("a.sent",)),
        crash("a.crash"),
        Event("advance", "advance", always(intent_id=INTENT, gen=0), after=("put",)),
        Event("advance again", "advance", always(intent_id=INTENT, gen=0), after=("advance",)),
        Event("recover", "recover", always(intent_id=INTENT), after=("advance",)),
        Event("b.claim", "claim", _under_the_next_gen("b"), after=("advance",)),
        Event("b.sent", "sent", _under_the_next_gen("b"), after=("b.claim",)),
        Event(
            "b.done",
            "complete",
            _under_the_next_gen("b", ok=True, echo=INTENT, observation="told b"),
            after=("b.sent",),
        ),
        Event("time passes", CLOCK, always(advance_ms=1000)),
    ),
    meets=frozenset(
        {
            "advance commit",
            "advance reject stale_gen",
            "claim reject stale_gen",
            "complete in_doubt missing_echo",
            "complete reject stale_gen",
            "put reject args_mismatch",
            "recover reject stuck",
            "sent duplicate",
            "sent reject stale_gen",
        }
    ),
)

UNDO_FAILS = Scenario(
    "outbox, an undo fares no better",
    "outbox",
    CONFIG,
    (
        Event("put", "put", always(intent_id=INTENT, gen=0, **JOB)),
        Event("a.claim", "claim", _by("a"), after=("put",)),
        Event("a.sent", "sent", _by("a"), after=("a.claim",)),
        Event("time passes", CLOCK, always(advance_ms=1000), after=("a.sent",)),
        Event("recover", "recover", always(intent_id=INTENT), after=("a.sent",)),
        Event("a.done", "complete", _done("a"), after=("a.sent",)),
        Event("u.claim", "claim", _by("u", INTENT + UNDO), after=("recover",)),
        Event("u.sent", "sent", _by("u", INTENT + UNDO), after=("u.claim",), silenced_by=("u.crash",)),
        Event("u.fails", "complete", _done("u", INTENT + UNDO, ok=False), after=("u.sent",)),
        crash("u.crash"),
        Event("recover undo", "recover", always(intent_id=INTENT + UNDO), after=("recover",)),
        Event("v.claim", "claim", _by("v", INTENT + UNDO), after=("recover",)),
        Event("v.sent", "sent", _by("v", INTENT + UNDO), after=("v.claim",)),
        Event("v.done", "complete", _done("v", INTENT + UNDO), after=("v.sent",)),
        Event("more time passes", CLOCK, always(advance_ms=1000), after=("recover",)),
        Event("recover again", "recover", always(intent_id=INTENT), after=("recover",)),
        Event("recover undo again", "recover", always(intent_id=INTENT + UNDO), after=("recover undo",)),
    ),
    meets=frozenset(
        {
            "claim commit",
            "complete commit",
            "recover compensate",
            "recover duplicate",
            "recover in_doubt awaiting_ack",
            "recover reject stuck",
        }
    ),
)


GIVEN_UP = Scenario(
    "outbox, a conversation is given up",
    "outbox",
    CONFIG,
    (
        Event("put", "put", always(intent_id=INTENT, gen=0, **JOB)),
        Event("a.claim", "claim", _by("a"), after=("put",)),
        Event("a.sent", "sent", _by("a"), after=("a.claim",)),
        Event("a.done", "complete", _done("a"), after=("a.sent",)),
        Event("a.done again", "complete", _done("a"), after=("a.done",)),
        Event("revoke", "revoke", always(intent_id=INTENT, gen=0)),
        Event("revoke again", "revoke", always(intent_id=INTENT, gen=0), after=("revoke",)),
        Event("revoke, stale", "revoke", always(intent_id=INTENT, gen=1), after=("a.done",)),
        Event("recover", "recover", always(intent_id=INTENT), after=("a.claim",)),
        Event("time passes", CLOCK, always(advance_ms=1000), after=("a.sent",)),
        Event("undo.claim", "claim", _by("u", INTENT + UNDO), after=("revoke",)),
        Event("undo.done", "complete", _done("u", INTENT + UNDO), after=("undo.claim",)),
        Event("revoke the undo", "revoke", always(intent_id=INTENT + UNDO, gen=0), after=("undo.done",)),
    ),
    meets=frozenset(
        {
            "complete reject already_final",
            "revoke commit",
            "revoke duplicate",
            "revoke reject not_committed",
            "revoke reject stale_gen",
            "revoke reject stuck",
            "revoke reject unknown_intent",
            "recover compensate",
        }
    ),
)


SCENARIOS = (
    GIVEN_UP,
    PLANNER_GIVES_UP,
    WORKER_DIES,
    UNDO_FAILS,
)


# --- the properties

NOT_LEFT = (State.QUEUED, State.EXECUTING)
FINAL = (State.COMMITTED, State.FAILED, State.COMPENSATED, State.STUCK)


def _intents(model: Model) -> Mapping[str, Intent]:
    return as_a(Outbox, model).intents


def _a_call_leaves_once(step: Step) -> bool:
    before, after = _intents(step.before), _intents(step.after)
    left = [intent_id for intent_id, at in before.items() if at.state not in NOT_LEFT]
    leaves = before.keys() and committed(step, "sent")
    if leaves and before[text_of(step, "intent_id")].state is not State.EXECUTING:
        return False
    return all(after[intent_id].state not in NOT_LEFT for intent_id in left)


def _only_a_put_mints(step: Step) -> bool:
    before, after = _intents(step.before), _intents(step.after)
    new = after.keys() - before.keys()
    if committed(step, "put"):
        return new == {text_of(step, "intent_id")}
    undoes = committed(step, "revoke") or (step.answer is not None and step.answer.verb is Verb.COMPENSATE)
    if not undoes:
        return not new
    undone = text_of(step, "intent_id")
    undo = after[undone + UNDO]
    same_job = undo.args == after[undone].args and undo.tool == as_a(Outbox, step.after).inverses[after[undone].tool]
    return new <= {undone + UNDO} and same_job


def _under_the_rows_gen(step: Step) -> bool:
    if not committed(step, "claim", "sent", "complete", "advance"):
        return True
    return _intents(step.before)[text_of(step, "intent_id")].gen == step.call.args["gen"]


def _by_the_holder_of_the_claim(step: Step) -> bool:
    if not committed(step, "sent", "complete"):
        return True
    at = _intents(step.before)[text_of(step, "intent_id")]
    held = at.state in (State.EXECUTING, State.AWAITING_ACK)
    return held and at.executor == step.call.args["executor"]


def _a_success_is_echoed(step: Step) -> bool:
    if not committed(step, "complete") or step.call.args["ok"] is False:
        return True
    return step.call.args.get("echo") == step.call.args["intent_id"]


def _final_is_final(step: Step) -> bool:
    before, after = _intents(step.before), _intents(step.after)
    for intent_id, was in before.items():
        at = after[intent_id]
        if (at.tool, at.args) != (was.tool, was.args):
            return False
        revoked = committed(step, "revoke") and text_of(step, "intent_id") == intent_id
        if revoked and (was.state, at.state) == (State.COMMITTED, State.COMPENSATING):
            continue
        if was.state in FINAL and (at.state, at.observation) != (was.state, was.observation):
            return False
    return True


def _an_end_is_what_its_undo_says(step: Step) -> bool:
    expected = {State.COMMITTED: State.COMPENSATED, State.FAILED: State.STUCK, State.STUCK: State.STUCK}
    at = _intents(step.after)
    for intent_id, intent in at.items():
        undo = at.get(intent_id + UNDO)
        if undo is not None and intent.state is not expected.get(undo.state, State.COMPENSATING):
            return False
        if undo is None and intent.state in (State.COMPENSATING, State.COMPENSATED):
            return False
    return all(undone_by(intent_id) in (None, *at) for intent_id in at)


def _no_executor_takes_it_twice(step: Step) -> bool:
    if not committed(step, "claim"):
        return True
    at = _intents(step.before)[text_of(step, "intent_id")]
    return at.state is State.QUEUED and text_of(step, "executor") not in at.claimed


def _bring_to_its_end(at: Outbox, intent_id: str) -> None:
    """What the workers do: recover what is silent, call what is queued, undo what is in doubt for too long."""
    intent = at.intents[intent_id]
    if intent.state is State.EXECUTING:
        at.decide("recover", {"intent_id": intent_id})
    if intent.state is State.QUEUED:
        holder = {"intent_id": intent_id, "gen": intent.gen, "executor": f"heir of {intent_id}"}
        at.decide("claim", holder)
        at.decide("sent", holder)
        at.decide("complete", {**holder, "ok": True, "echo": intent_id, "observation": "done"})
    if intent.state is State.AWAITING_ACK:
        at.elapse(at.ack_bound_ms)
        at.decide("recover", {"intent_id": intent_id})
    if intent.state is State.COMPENSATING:
        _bring_to_its_end(at, intent_id + UNDO)


def _every_intent_can_end(model: Model) -> bool:
    at = as_a(Outbox, model)
    for intent_id in sorted(at.intents):
        _bring_to_its_end(at, intent_id)
    return all(intent.state in FINAL for intent in at.intents.values())


PROPERTIES = (
    Property("P1 a call that may have left is never made again", _a_call_leaves_once),
    Property("P2 no timeout mints an intent", _only_a_put_mints),
    Property("P3 an outcome is bound under the row's gen", _under_the_rows_gen),
    Property("P4 an outcome comes from the holder of the claim", _by_the_holder_of_the_claim),
    Property("P5 a success echoes its key", _a_success_is_echoed),
    Property("P6 what is final changes by a revoke only", _final_is_final),
    Property("P7 a compensated intent's undo was made", _an_end_is_what_its_undo_says),
    Property("P8 no executor takes an intent twice", _no_executor_takes_it_twice),
    Property("L1 every intent can be brought to an end", live=_every_intent_can_end),
)


BREAKS: Mapping[str, str] = {
    "new_intent_on_timeout": "P2 no timeout mints an intent",
    "no_idempotency_header": "P5 a success echoes its key",
    "completion_ignores_gen": "P3 an outcome is bound under the row's gen",
    "completion_ignores_executor": "P4 an outcome comes from the holder of the claim",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {
    "recover stuck": {"intents"},
}
"""Refusal → the parts of the state that it may change."""

IDS = ("i1", "i2", "i3")

RECORDED_BY: Mapping[str, frozenset[bytes]] = {
    "recover reject stuck": frozenset(f"o.i:{name}{end}".encode() for name in IDS for end in ("", UNDO)),
    "recover compensate": frozenset(
        f"{field}{name}{end}".encode() for name in IDS for field, end in (("o.i:", ""), ("o.i:", UNDO), ("o.t:", UNDO))
    ),
}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """Small limits, so that they are met. One tool has no inverse; the inverse of another has one itself."""
    return {"ack_bound_ms": 100, "inverses": {"book": "cancel", "cancel": "book", "write": "é/~undo"}}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Outbox, model)
    known = sorted(model.intents)
    intent_id = rng.choice(known) if known and rng.random() < 0.85 else rng.choice([*IDS, "i1" + UNDO])
    if rng.random() < 0.8 and intent_id + UNDO in model.intents:
        intent_id += UNDO
    at = model.intents.get(intent_id) or Intent("", {}, 0)
    silent = rng.choice(["complete", "recover", CLOCK])
    next_op = {State.QUEUED: "claim", State.EXECUTING: "sent", State.AWAITING_ACK: silent}.get(at.state, "recover")
    op = pick(rng, put=2, claim=2, sent=1, complete=2, advance=1, recover=3, revoke=2, clock=2)
    if intent_id not in model.intents:
        op = "put" if rng.random() < 0.8 else op
    elif rng.random() < 0.5:
        op = next_op
    executor = at.executor or f"e{rng.randrange(3)}"
    keys = {"intent_id": intent_id, "gen": at.gen}
    args: dict[str, dict[str, object]] = {
        "put": {**keys, "tool": rng.choice(["book", "write", "pay"]), "args": rng.choice(_JOBS)},
        "claim": {**keys, "executor": rng.choice([executor, f"e{rng.randrange(6)}"])},
        "sent": {**keys, "executor": executor},
        "complete": {
            **keys,
            "executor": executor,
            "ok": rng.random() < 0.6,
            "echo": rng.choice([intent_id, intent_id, intent_id, "another", None]),
            "observation": rng.choice(["told", "told", "é☃"]),
        },
        "advance": dict(keys),
        "recover": {"intent_id": intent_id},
        "revoke": dict(keys),
        CLOCK: {"advance_ms": rng.choice([1, 99, 100, 100])},
    }
    if op == "put" and at.tool and rng.random() < 0.5:
        args["put"] |= {"tool": at.tool, "args": dict(reversed(list(at.args.items())))}
    return Call(op, args[op])


_JOBS: tuple[Mapping[str, object], ...] = (
    {"a": 1, "b": [{"d": None, "c": "é"}]},
    {"b": [{"c": "é", "d": None}], "a": 1},
    {"a": True},
    {"a": 1},
    {"a": 1.0},
    {},
    {"a": "\ud800\n"},
    {"a": {}, "b": []},
)
"""Two that are equal, and some that a careless comparison would take for equal."""
