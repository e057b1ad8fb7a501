"""What the tests know of fence 8, sandbox: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import random
from collections.abc import Mapping

from bus.models import Model
from bus.models.sandbox import Place, Sandbox, State, Write
from bus.vector_file import CLOCK
from tests.explore import Event, Property, Step
from tests.fences.fence import Args, Call, Scenario, always, as_a, committed, crash, pick, text_of

STEPS = ("s1", "s2", "mail")
BEAT_MS = 1000

# --- the race: a replica vanishes with a write, another takes over, the first one's receipt comes late


def _acquire(command: str, known_index: int) -> Args:
    return always(workspace="w1", known_index=known_index, command=command)


def _epoch(who: str, **more: object) -> Args:
    return lambda k: {"workspace": "w1", "epoch": k[f"{who}.acquire"]["epoch"], **more}


def _write(who: str, digest: str, receipt: str) -> Args:
    return _epoch(who, step="s1", path="/s1", digest=digest, receipt=receipt)


def _join(who: str, receipt_of: str) -> Args:
    return lambda k: {**_epoch(who)(k), "step": "s1", "receipt": k[f"{receipt_of}.write"]["receipt"]}


def _sandbox(name: str, *, escapes: bool, known_index: int, meets: frozenset[str]) -> Scenario:
    return Scenario(
        f"sandbox, {name}",
        "sandbox",
        {"heartbeat_ms": BEAT_MS},
        (
            Event("plan", "plan", always(step="s1", escapes=escapes)),
            Event("a.acquire", "acquire", _acquire("a" * 32, 0)),
            Event("a.acquire again", "acquire", _acquire("a" * 32, 0), after=("a.acquire",)),
            Event("a.write", "write", _write("a", "b1", "1" * 32), after=("plan", "a.acquire")),
            Event("a.write again", "write", _write("a", "b1", "1" * 32), after=("a.write",)),
            Event("a.join", "join", _join("a", "a"), after=("a.write",), silenced_by=("a.crash",)),
            crash("a.crash"),
            Event("preempt a", "preempt", _epoch("a"), after=("a.acquire",)),
            Event("silence", CLOCK, always(advance_ms=BEAT_MS)),
            Event("b.acquire", "acquire", _acquire("b" * 32, known_index), after=("a.acquire",)),
            Event("b.write", "write", _write("b", "b1", "2" * 32), after=("b.acquire",)),
            Event("b.other write", "write", _write("b", "b2", "3" * 32), after=("b.acquire",)),
            Event("b.join", "join", _join("b", "b"), after=("b.write",)),
            Event("b.join again", "join", _join("b", "b"), after=("b.join",)),
            Event("b.join of a's receipt", "join", _join("b", "a"), after=("a.write", "b.acquire")),
        ),
        meets=meets
        | {
            "acquire commit",
            "acquire duplicate",
            "join commit",
            "join duplicate",
            "preempt commit",
            "preempt reject stale_epoch",
            "write commit",
            "write duplicate",
            "write reject stale_epoch",
            "write reject step_conflict",
        },
    )


_REFUSED_JOINS = frozenset({"join reject stale_epoch", "join reject unknown_receipt"})

SCENARIOS = (
    _sandbox("an empty disk comes", escapes=False, known_index=0, meets=_REFUSED_JOINS),
    _sandbox(
        "the disk comes back",
        escapes=False,
        known_index=1,
        meets=_REFUSED_JOINS | {"acquire reject unknown_index"},
    ),
    _sandbox("the tool escapes", escapes=True, known_index=0, meets=frozenset({"join compensate", "write compensate"})),
)


# --- the properties


def _is_live(at: Sandbox, workspace: object) -> bool:
    place = at.places.get(str(workspace), Place())
    return place.beat_ms is not None and at.now_ms - place.beat_ms < at.heartbeat_ms


def _bytes_are_there(at: Sandbox, step: str) -> bool:
    """The step's latest write is in the log of a live workspace, and each acquire since has proved it."""
    receipt = at.steps[step].receipt
    if receipt is None:
        return False
    write = at.writes[receipt]
    later = [got for got in at.acquired.values() if got.workspace == write.workspace and got.epoch > write.epoch]
    return _is_live(at, write.workspace) and all(write.log_index <= got.known_index for got in later)


def _joined_under_a_live_epoch(step: Step) -> bool:
    if not committed(step, "join"):
        return True
    before, workspace = as_a(Sandbox, step.before), text_of(step, "workspace")
    return _is_live(before, workspace) and before.places[workspace].epoch == step.call.args["epoch"]


def _joined_while_its_bytes_are_there(step: Step) -> bool:
    if not committed(step, "join"):
        return True
    before, name = as_a(Sandbox, step.before), text_of(step, "step")
    receipt = before.steps[name].receipt
    if receipt is None or receipt != text_of(step, "receipt"):
        return False
    return before.writes[receipt].workspace == text_of(step, "workspace") and _bytes_are_there(before, name)


def _what_escapes_is_compensated(step: Step) -> bool:
    at = as_a(Sandbox, step.after)
    wrong = {True: State.REJECTED, False: State.COMPENSATED}
    return all(planned.state is not wrong[planned.escapes] for planned in at.steps.values())


def _ends_are_ends(step: Step) -> bool:
    before, after = as_a(Sandbox, step.before), as_a(Sandbox, step.after)
    return all(
        after.steps[name] == was
        for name, was in before.steps.items()
        if was.state in (State.COMMITTED, State.COMPENSATED)
    )


def _numbers_only_grow(step: Step) -> bool:
    before, after = as_a(Sandbox, step.before), as_a(Sandbox, step.after)
    places = [(write.workspace, write.log_index) for write in after.writes.values()]
    if len(places) != len(set(places)) or any(after.places[name].last_index < index for name, index in places):
        return False
    if committed(step, "acquire"):
        workspace = text_of(step, "workspace")
        if after.places[workspace].epoch <= before.places.get(workspace, Place()).epoch:
            return False
    return all(
        after.places[name].epoch >= was.epoch and after.places[name].last_index >= was.last_index
        for name, was in before.places.items()
    )


def _identity(write: Write) -> tuple[object, ...]:
    return write.step, write.workspace, write.epoch, write.path, write.digest, write.log_index


def _a_receipt_names_one_write(step: Step) -> bool:
    before, after = as_a(Sandbox, step.before), as_a(Sandbox, step.after)
    grown = len(after.writes) - len(before.writes)
    stays = all(_identity(after.writes[receipt]) == _identity(was) for receipt, was in before.writes.items())
    return stays and grown == committed(step, "write")


def _only_its_own_lost_write_decides_a_step(step: Step) -> bool:
    before, after = as_a(Sandbox, step.before), as_a(Sandbox, step.after)
    for name, was in before.steps.items():
        if after.steps[name] == was or after.steps[name].state is State.COMMITTED:
            continue
        if was.state is State.FENCED and _bytes_are_there(before, name):
            return False
        if name != step.call.args.get("step"):
            return False
    return True


def _a_sign_of_life_counts_in_full(step: Step) -> bool:
    if not committed(step, "acquire", "heartbeat"):
        return True
    after = as_a(Sandbox, step.after)
    return after.places[text_of(step, "workspace")].beat_ms == after.now_ms


def _every_step_can_end(model: Model) -> bool:
    """The disk comes back with all that it had, and joins it; what is lost is written again, or was compensated."""
    at = as_a(Sandbox, model)
    for name in sorted(at.steps):
        planned = at.steps[name]
        if planned.receipt is not None and planned.state is State.FENCED:
            workspace = at.writes[planned.receipt].workspace
            _join_now(at, name, workspace, planned.receipt, _life(at, workspace, name))
        if planned.state in (State.PENDING, State.REJECTED):
            epoch = _life(at, "w1", name)
            bytes_ = {"path": "/fresh", "digest": "fresh", "receipt": f"fresh for {name}"}
            at.decide("write", {"workspace": "w1", "step": name, "epoch": epoch, **bytes_})
            _join_now(at, name, "w1", f"fresh for {name}", epoch)
        if planned.state is not State.COMMITTED and not (planned.state is State.COMPENSATED and planned.escapes):
            return False
    return True


def _life(at: Sandbox, workspace: str, name: str) -> object:
    known = at.places.get(workspace, Place()).last_index
    named = {"workspace": workspace, "known_index": known, "command": f"life {len(at.acquired)} for {name}"}
    return at.decide("acquire", named).fields["epoch"]


def _join_now(at: Sandbox, name: str, workspace: str, receipt: str, epoch: object) -> None:
    at.decide("join", {"workspace": workspace, "step": name, "receipt": receipt, "epoch": epoch})


PROPERTIES = (
    Property("B1 a step commits under a live epoch", _joined_under_a_live_epoch),
    Property("B2 a step commits while its bytes are there", _joined_while_its_bytes_are_there),
    Property("B3 what escapes is compensated, and nothing else", _what_escapes_is_compensated),
    Property("B4 committed and compensated are ends", _ends_are_ends),
    Property("B5 log indices and epochs only grow", _numbers_only_grow),
    Property("B6 a receipt names one write", _a_receipt_names_one_write),
    Property("B7 only its own lost write decides a step", _only_its_own_lost_write_decides_a_step),
    Property("B8 a sign of life counts in full", _a_sign_of_life_counts_in_full),
    Property("L1 every step can end", live=_every_step_can_end),
)


BREAKS: Mapping[str, str] = {
    "commit_on_200": "B1 a step commits under a live epoch",
    "receipt_outlives_its_epoch": "B2 a step commits while its bytes are there",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {
    "join stale_epoch": {"steps"},
}
"""Refusal → the parts of the state that it may change."""

_STEP_FIELDS = frozenset(f"b.step:{name}".encode() for name in STEPS)

RECORDED_BY: Mapping[str, frozenset[bytes]] = {
    "join reject stale_epoch": _STEP_FIELDS,
    "join compensate": _STEP_FIELDS,
    "write compensate": _STEP_FIELDS,
}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """Short, so that a silence of a few calls is too long."""
    return {"heartbeat_ms": rng.choice([50, 100])}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Sandbox, model)
    name, workspace = rng.choice(STEPS), rng.choice(["w1", "w1", "w2"])
    place = model.places.get(workspace) or Place()
    planned = model.steps.get(name)
    written = model.writes.get(planned.receipt or "") if planned else None
    home = written.workspace if written else workspace
    drawn = f"{rng.getrandbits(128):032x}"
    op = pick(rng, plan=2, acquire=3, heartbeat=2, preempt=1, write=5, join=4, clock=2)
    args: dict[str, dict[str, object]] = {
        "plan": {"step": name, "escapes": name == "mail"},
        "acquire": {
            "workspace": workspace,
            "known_index": rng.choice([0, place.last_index, rng.randint(0, place.last_index)]),
            "command": drawn,
        },
        "heartbeat": {"workspace": workspace, "epoch": place.epoch},
        "preempt": {"workspace": workspace, "epoch": place.epoch},
        "write": {
            "workspace": workspace,
            "step": name,
            "epoch": place.epoch,
            "path": f"/{name}",
            "digest": rng.choice(["b1", "b1", "b2"]),
            "receipt": planned.receipt if planned and planned.receipt and rng.random() < 0.15 else drawn,
        },
        "join": {
            "workspace": home,
            "step": name,
            "receipt": planned.receipt if planned and planned.receipt else drawn,
            "epoch": model.places.get(home, Place()).epoch,
        },
        CLOCK: {"advance_ms": rng.choice([1, 30, 49, 50, 100])},
    }
    return Call(op, args[op])
