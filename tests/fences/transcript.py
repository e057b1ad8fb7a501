"""What the tests know of fence 7, transcript: its race, its properties, its naive policies, its likely calls."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence

from bus.models import Model, Verb
from bus.models.transcript import EMPTY, Run, Transcript, chain
from tests.explore import Event, Kept, Property, Step
from tests.fences.fence import Call, Scenario, always, as_a, committed, crash, pick, text_of

# --- the race: a preempted holder, its successor, an impostor, and another run's holder

PLAN = chain(EMPTY, "plan")


def _holder(kept: Kept, who: str, run: str = "n3") -> dict[str, object]:
    return {"run": run, "lease_id": f"lease of {who}", "gen": kept[f"{who}.lease"]["gen"]}


def _successor_goes_on(kept: Kept) -> dict[str, object]:
    """It continues from what its lease told it, and resolves an intention that dangles there by its name."""
    told = kept["b.lease"]
    length, unresolved = told["length"], told["unresolved"]
    assert isinstance(length, int)
    assert isinstance(unresolved, list)
    args = {**_holder(kept, "b"), "parent": told["head"], "seq": length + 1, "payload": "went on"}
    return {**args, "intent": "call-7"} if length + 1 in unresolved else args


HANDOVER = Scenario(
    "transcript, a run changes hands",
    "transcript",
    {},
    (
        Event("a.lease", "lease", always(run="n3", lease_id="lease of a")),
        Event(
            "a.plan",
            "append",
            lambda k: _holder(k, "a") | {"parent": EMPTY, "seq": 1, "payload": "plan"},
            after=("a.lease",),
            silenced_by=("a.crash",),
        ),
        Event(
            "a.plan again",
            "append",
            lambda k: _holder(k, "a") | {"parent": EMPTY, "seq": 1, "payload": "plan"},
            after=("a.plan",),
        ),
        Event(
            "a.intend",
            "intend",
            lambda k: _holder(k, "a") | {"parent": PLAN, "seq": 2, "digest": "call-7"},
            after=("a.plan",),
            silenced_by=("a.crash",),
        ),
        Event(
            "a.called",
            "append",
            lambda k: _holder(k, "a") | {"parent": PLAN, "seq": 2, "payload": "called", "intent": "call-7"},
            after=("a.intend",),
            silenced_by=("a.crash",),
        ),
        crash("a.crash"),
        Event("timeout", "fence", lambda k: {"run": "n3", "gen": k["a.lease"]["gen"]}, after=("a.lease",)),
        Event("b.lease", "lease", always(run="n3", lease_id="lease of b")),
        Event(
            "b.intend",
            "intend",
            lambda k: _holder(k, "b") | {"parent": PLAN, "seq": 2, "digest": "call-7"},
            after=("b.lease",),
        ),
        Event("b.goes on", "append", _successor_goes_on, after=("b.lease",)),
        Event(
            "b.seal",
            "seal",
            lambda k: _holder(k, "b") | {"head": k["b.goes on"]["head"]},
            after=("b.goes on",),
        ),
        Event(
            "twin of b",
            "append",
            lambda k: _holder(k, "b") | {"lease_id": "twin", "parent": EMPTY, "seq": 1, "payload": "twin"},
            after=("b.lease",),
        ),
        Event(
            "b forges",
            "append",
            lambda k: _holder(k, "b") | {"parent": chain(EMPTY, "?"), "seq": 2, "payload": "forged"},
            after=("b.lease",),
        ),
    ),
    meets=frozenset(
        {
            "append duplicate",
            "append reject forged_prefix",
            "append reject lease_mismatch",
            "append reject stale_gen",
            "fence reject stale_gen",
            "intend in_doubt dangling",
            "intend reject stale_gen",
            "lease reject sealed",
            "seal commit",
        }
    ),
)

SHARED_WORKER = Scenario(
    "transcript, a worker between two runs",
    "transcript",
    {},
    (
        Event("a.lease", "lease", always(run="n3", lease_id="lease of a")),
        Event(
            "a.plan",
            "append",
            lambda k: _holder(k, "a") | {"parent": EMPTY, "seq": 1, "payload": "plan"},
            after=("a.lease",),
            silenced_by=("a.crash",),
        ),
        crash("a.crash"),
        Event("timeout", "fence", lambda k: {"run": "n3", "gen": k["a.lease"]["gen"]}, after=("a.lease",)),
        Event("a.resume", "resume", lambda k: _holder(k, "a"), after=("a.lease",), silenced_by=("a.crash",)),
        Event("a.lease late again", "lease", always(run="n3", lease_id="lease of a"), after=("a.lease",)),
        Event("a.lease on n4", "lease", always(run="n4", lease_id="lease of a")),
        Event("c.lease", "lease", always(run="n4", lease_id="lease of c")),
        Event(
            "a's event under c's gen",
            "append",
            lambda k: _holder(k, "c", "n4") | {"lease_id": "lease of a", "parent": EMPTY, "seq": 1, "payload": "of n3"},
            after=("c.lease", "a.lease"),
        ),
        Event(
            "c's lease on n3",
            "append",
            lambda k: _holder(k, "c") | {"parent": PLAN, "seq": 2, "payload": "of n3"},
            after=("c.lease",),
        ),
        Event(
            "c.plan",
            "append",
            lambda k: _holder(k, "c", "n4") | {"parent": EMPTY, "seq": 1, "payload": "plan of n4"},
            after=("c.lease",),
        ),
    ),
    meets=frozenset(
        {
            "append commit",
            "append reject run_mismatch",
            "append reject stale_gen",
            "fence commit",
            "lease duplicate",
            "lease reject lease_reused",
            "resume commit",
            "resume reject stale",
        }
    ),
)


SCENARIOS = (
    HANDOVER,
    SHARED_WORKER,
)


# --- the properties


def _fold(events: Sequence[str]) -> str:
    head = "0" * 64
    for payload in events:
        head = hashlib.sha256((head + payload).encode()).hexdigest()
    return head


def _writes(step: Step) -> bool:
    return committed(step, "append", "intend", "seal")


def _by_its_run(step: Step) -> bool:
    before = as_a(Transcript, step.before)
    return not _writes(step) or before.granted.get(text_of(step, "lease_id")) == text_of(step, "run")


def _by_the_live_gen(step: Step) -> bool:
    live = as_a(Transcript, step.before).runs.get(str(step.call.args.get("run")), Run()).live
    return not _writes(step) or (live is not None and live.gen == step.call.args["gen"])


def _by_the_live_lease(step: Step) -> bool:
    live = as_a(Transcript, step.before).runs.get(str(step.call.args.get("run")), Run()).live
    return not _writes(step) or (live is not None and live.lease_id == step.call.args["lease_id"])


def _refused_is_only_buried(step: Step) -> bool:
    """A refused event is a dead letter, whole; nothing refused or in doubt touches a transcript."""
    before, after = as_a(Transcript, step.before), as_a(Transcript, step.after)
    if step.answer is None or step.answer.verb in (Verb.COMMIT, Verb.DUPLICATE):
        return before.dead_letters == after.dead_letters
    buried = after.dead_letters[len(before.dead_letters) :]
    if step.call.op == "append" and step.answer.reason != "schema":
        args = dict(step.call.args)
        whole = [letter.event.payload for letter in buried] == [args["payload"]]
        reasons = [letter.reason for letter in buried] == [step.answer.reason]
        return before.runs == after.runs and whole and reasons
    return before.runs == after.runs and not buried


def _one_unbroken_chain(step: Step) -> bool:
    before, after = as_a(Transcript, step.before), as_a(Transcript, step.after)
    for run, at in after.runs.items():
        was = before.runs.get(run, Run())
        kept = at.events[: was.length] == was.events
        grown = at.length - was.length
        if at.head != _fold(at.events) or not kept or grown > (0 if was.sealed else 1):
            return False
    return True


def _resolved_by_name(step: Step) -> bool:
    if committed(step, "append"):
        at = as_a(Transcript, step.before).runs[text_of(step, "run")]
        seq = step.call.args["seq"]
        assert isinstance(seq, int)
        intended = at.intentions.get(seq)
        return step.call.args.get("intent") == (intended.digest if intended else None)
    return all(not at.intentions for at in as_a(Transcript, step.after).runs.values() if at.sealed)


def _gens_grow(step: Step) -> bool:
    if not committed(step, "lease") or step.answer is None:
        return True
    gen = step.answer.fields["gen"]
    assert isinstance(gen, int)
    return gen > as_a(Transcript, step.before).runs.get(text_of(step, "run"), Run()).gen


def _every_run_can_be_sealed(model: Model) -> bool:
    """A successor takes each run, resolves what dangles, and seals."""
    transcript = as_a(Transcript, model)
    for run in [run for run, at in transcript.runs.items() if not at.sealed]:
        lease = transcript.decide("lease", {"run": run, "lease_id": f"successor of {run}"})
        at = transcript.runs[run]
        holder = {"run": run, "lease_id": f"successor of {run}", "gen": lease.fields.get("gen")}
        while at.intentions:
            seq = at.length + 1
            intended = at.intentions.get(seq)
            args = {**holder, "parent": at.head, "seq": seq, "payload": "recovered"}
            if transcript.decide("append", {**args, "intent": intended and intended.digest}).refused:
                return False
        if transcript.decide("seal", {**holder, "head": at.head}).verb is not Verb.COMMIT:
            return False
    return True


PROPERTIES = (
    Property("P1 an accepted event's lease was granted to its run", _by_its_run),
    Property("P2 an accepted event's gen was live", _by_the_live_gen),
    Property("P3 an accepted event's lease was live", _by_the_live_lease),
    Property("P4 stale is buried, never copied", _refused_is_only_buried),
    Property("P5 the head is the chain over a prefix that stays", _one_unbroken_chain),
    Property("P6 an intention is resolved by its name, before the seal", _resolved_by_name),
    Property("P7 generations grow", _gens_grow),
    Property("L1 every run can be sealed", live=_every_run_can_be_sealed),
)


BREAKS: Mapping[str, str] = {
    "append_by_liveness": "P2 an accepted event's gen was live",
    "gen_only": "P5 the head is the chain over a prefix that stays",
}
"""Mutant → the property that it must break."""

KEPT_BY: Mapping[str, set[str]] = {}
"""Refusal → the parts of the state that it may change."""

RECORDED_BY: Mapping[str, frozenset[bytes]] = {}
"""Refusal → the fields on the server that it changes itself: an end, a count, a place in a queue."""


# --- likely calls


def config(rng: random.Random) -> dict[str, object]:
    """Small limits, so that they are met."""
    return {}


def likely(rng: random.Random, model: Model) -> Call:
    """A call that a well-informed client would make next."""
    model = as_a(Transcript, model)
    run = rng.choice(["n1", "n2", "n3"])
    at = model.runs.get(run) or Run()
    op = pick(rng, lease=1, fence=1, resume=1, append=6, intend=3, seal=1)
    if at.live is None or op == "lease":
        lease_id = f"lease-{len(model.granted)}" if rng.random() < 0.9 else f"lease-{rng.randrange(4)}"
        return Call("lease", {"run": run, "lease_id": lease_id})
    seq = at.length + 1
    holder = {"run": run, "lease_id": at.live.lease_id, "gen": at.live.gen}
    intended = at.intentions.get(seq)
    args: dict[str, Callable[[], dict[str, object]]] = {
        "fence": lambda: {"run": run, "gen": at.gen},
        "resume": lambda: dict(holder),
        "append": lambda: {
            **holder,
            "parent": at.head,
            "seq": seq,
            "payload": rng.choice(["plan", "call ls", "é/☃"]),
            **({"intent": intended.digest} if intended else {}),
        },
        "intend": lambda: {
            **holder,
            "parent": at.head,
            "seq": seq + rng.choice([0, 0, 0, 1]),
            "digest": rng.choice(["call-1", "call-2"]),
        },
        "seal": lambda: {**holder, "head": rng.choice([at.head, at.head, *at.heads])},
    }
    return Call(op, args[op]())
