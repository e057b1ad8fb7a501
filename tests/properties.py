"""The named properties of each fence, as the docstrings of the models list them.

Each is asked at one step: what was accepted is compared with the state before it, what must not move with the state
after. They are written against the state alone and compute what they can anew (hashes, counts), so that a model
that checks wrongly is not judged by its own check. The last ones, named L, are liveness: from wherever the
events have led, somebody who follows the protocol can bring the work to its end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TypeVar

from bus.models import Model, Verb
from bus.models.admission import Admission
from bus.models.histogram import Histogram, Status
from bus.models.judge import Judge
from bus.models.transcript import Run, Transcript
from tests.explore import Property, Step

__all__ = ["PROPERTIES"]

M = TypeVar("M", bound=Model)


def _as(kind: type[M], model: Model) -> M:
    assert isinstance(model, kind)
    return model


def _committed(step: Step, *ops: str) -> bool:
    return step.answer is not None and step.answer.verb is Verb.COMMIT and step.call.op in ops


def _text(step: Step, name: str) -> str:
    value = step.call.args[name]
    assert isinstance(value, str)
    return value


# --- transcript ------------------------------------------------------------------------------------------


def _fold(events: Sequence[str]) -> str:
    head = "0" * 64
    for payload in events:
        head = hashlib.sha256((head + payload).encode()).hexdigest()
    return head


def _writes(step: Step) -> bool:
    return _committed(step, "append", "intend", "seal")


def _by_its_run(step: Step) -> bool:
    before = _as(Transcript, step.before)
    return not _writes(step) or before.granted.get(_text(step, "lease_id")) == _text(step, "run")


def _by_the_live_gen(step: Step) -> bool:
    live = _as(Transcript, step.before).runs.get(str(step.call.args.get("run")), Run()).live
    return not _writes(step) or (live is not None and live.gen == step.call.args["gen"])


def _by_the_live_lease(step: Step) -> bool:
    live = _as(Transcript, step.before).runs.get(str(step.call.args.get("run")), Run()).live
    return not _writes(step) or (live is not None and live.lease_id == step.call.args["lease_id"])


def _refused_is_only_buried(step: Step) -> bool:
    """A refused event is a dead letter, whole; nothing refused or in doubt touches a transcript."""
    before, after = _as(Transcript, step.before), _as(Transcript, step.after)
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
    before, after = _as(Transcript, step.before), _as(Transcript, step.after)
    for run, at in after.runs.items():
        was = before.runs.get(run, Run())
        kept = at.events[: was.length] == was.events
        grown = at.length - was.length
        if at.head != _fold(at.events) or not kept or grown > (0 if was.sealed else 1):
            return False
    return True


def _resolved_by_name(step: Step) -> bool:
    if _committed(step, "append"):
        at = _as(Transcript, step.before).runs[_text(step, "run")]
        seq = step.call.args["seq"]
        assert isinstance(seq, int)
        intended = at.intentions.get(seq)
        return step.call.args.get("intent") == (intended.digest if intended else None)
    return all(not at.intentions for at in _as(Transcript, step.after).runs.values() if at.sealed)


def _gens_grow(step: Step) -> bool:
    if not _committed(step, "lease") or step.answer is None:
        return True
    gen = step.answer.fields["gen"]
    assert isinstance(gen, int)
    return gen > _as(Transcript, step.before).runs.get(_text(step, "run"), Run()).gen


def _every_run_can_be_sealed(model: Model) -> bool:
    """A successor takes each run, resolves what dangles, and seals."""
    transcript = _as(Transcript, model)
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


TRANSCRIPT = (
    Property("P1 an accepted event's lease was granted to its run", _by_its_run),
    Property("P2 an accepted event's gen was live", _by_the_live_gen),
    Property("P3 an accepted event's lease was live", _by_the_live_lease),
    Property("P4 stale is buried, never copied", _refused_is_only_buried),
    Property("P5 the head is the chain over a prefix that stays", _one_unbroken_chain),
    Property("P6 an intention is resolved by its name, before the seal", _resolved_by_name),
    Property("P7 generations grow", _gens_grow),
    Property("L1 every run can be sealed", live=_every_run_can_be_sealed),
)


# --- histogram -------------------------------------------------------------------------------------------


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
    before, after = _as(Histogram, step.before), _as(Histogram, step.after)
    if before.status not in (Status.CLOSED, Status.INCONCLUSIVE):
        return True
    return (before.status, before.rows, before.holes, before.snapshot_id) == (
        after.status,
        after.rows,
        after.holes,
        after.snapshot_id,
    )


def _no_number_before_the_close(step: Step) -> bool:
    return not _committed(step, "pass_rate") or _as(Histogram, step.before).status is Status.CLOSED


def _a_number_names_its_snapshot(step: Step) -> bool:
    at = _as(Histogram, step.after)
    if at.status is Status.CLOSED and at.snapshot_id != _snapshot_id(at):
        return False
    if not _committed(step, "pass_rate") or step.answer is None:
        return True
    passed = sum(row.bin == at.bins[0] for row in at.rows.values())
    told = {"passed": passed, "accepted": len(at.rows), "holes": len(at.holes), "snapshot_id": at.snapshot_id}
    return at.snapshot_id is not None and step.answer.fields == told


def _a_close_is_over_a_closed_set(step: Step) -> bool:
    before = _as(Histogram, step.before)
    if not _committed(step, "close"):
        return True
    accounted = before.rows.keys() | before.holes.keys() == before.intended
    return before.status is Status.DRAINED and accounted and len(before.rows) >= before.quorum


def _rows_are_the_fenced_ones(step: Step) -> bool:
    before, after = _as(Histogram, step.before), _as(Histogram, step.after)
    new = [row for run, row in after.rows.items() if run not in before.rows]
    fenced = all(before.epochs.get(row.run) == row.epoch and before.digests.get(row.run) == row.digest for row in new)
    return fenced and len(new) <= 1 and before.rows.items() <= after.rows.items()


def _in_flight_is_bounded(step: Step) -> bool:
    at = _as(Histogram, step.after)
    flying = at.digests.keys() - at.rows.keys() - at.holes.keys()
    return at.in_flight == flying and len(flying) <= at.max_in_flight


def _the_batch_can_be_closed(model: Model) -> bool:
    """The planner names what is left as holes, drains and closes: a number, or an end without one."""
    at = _as(Histogram, model)
    for run in sorted(at.intended - at.rows.keys() - at.holes.keys()):
        at.decide("abandon", {"run": run, "epoch": at.epochs.get(run, 0), "why": "lost"})
    at.decide("drain", {})
    at.decide("close", {})
    rate = at.decide("pass_rate", {})
    enough = len(at.rows) >= at.quorum
    return (rate.verb is Verb.COMMIT) if enough else (rate.reason == "below_quorum")


HISTOGRAM = (
    Property("H1 after the end nothing moves", _nothing_moves_after_the_end),
    Property("H2 no number before the close", _no_number_before_the_close),
    Property("H3 a number names its snapshot", _a_number_names_its_snapshot),
    Property("H4 a close has every run and the quorum", _a_close_is_over_a_closed_set),
    Property("H5 a row is the fenced one, once", _rows_are_the_fenced_ones),
    Property("H6 in flight is bounded", _in_flight_is_bounded),
    Property("L1 the batch can be closed", live=_the_batch_can_be_closed),
)


# --- judge -----------------------------------------------------------------------------------------------


def _rows_equal_their_tokens(step: Step) -> bool:
    at = _as(Judge, step.after)
    tokens = {run: (token.candidate, token.judge, token.epoch) for run, token in at.tokens.items()}
    return all((row.candidate, row.judge, row.epoch) == tokens.get(run) for run, row in at.rows.items())


def _rows_stay(step: Step) -> bool:
    before, after = _as(Judge, step.before), _as(Judge, step.after)
    return before.rows.items() <= after.rows.items()


def _tombstones_never_sign(step: Step) -> bool:
    tombstones = _as(Judge, step.before).tombstones
    return not _committed(step, "commit") or step.call.args["epoch"] not in tombstones.get(_text(step, "run"), [])


def _replays_are_bounded(step: Step) -> bool:
    at = _as(Judge, step.after)
    return at.replays <= (at.replay_budget if at.policy == "replay" else 0)


def _only_the_unscored_wait(step: Step) -> bool:
    at = _as(Judge, step.after)
    return not at.review & at.rows.keys() and (at.policy == "review" or not at.review)


def _every_run_can_be_scored(model: Model) -> bool:
    """Whatever came, an operator can bind a fresh pair, and that pair signs."""
    at = _as(Judge, model)
    for run in [run for run in at.tokens if run not in at.rows]:
        pair = {"candidate": "fresh", "judge": "fresh"}
        bound = at.decide("rebind", {"run": run, "epoch": at.tokens[run].epoch, **pair})
        observed = {"observed_candidate": "fresh", "observed_judge": "fresh", "score_digest": "d"}
        signed = at.decide("commit", {"run": run, "epoch": bound.fields.get("epoch"), **observed})
        if signed.verb is not Verb.COMMIT:
            return False
    return True


JUDGE = (
    Property("J1 each row equals its token", _rows_equal_their_tokens),
    Property("J2 a row never changes", _rows_stay),
    Property("J3 a tombstoned epoch never signs", _tombstones_never_sign),
    Property("J4 replays stay within the budget", _replays_are_bounded),
    Property("J5 only unscored runs wait for review", _only_the_unscored_wait),
    Property("L1 every run can be scored", live=_every_run_can_be_scored),
)


# --- admission -------------------------------------------------------------------------------------------


def _in_flight_within_the_bound(step: Step) -> bool:
    at = _as(Admission, step.after)
    held = sum(not lease.gone for lease in at.leases.values())
    return at.in_flight == held and 0 <= held <= at.bound


def _one_commit_a_step(step: Step) -> bool:
    before, after = _as(Admission, step.before), _as(Admission, step.after)
    grown = len(after.committed) - len(before.committed)
    return before.committed.items() <= after.committed.items() and grown == _committed(step, "apply")


def _by_a_live_lease(step: Step) -> bool:
    if not _committed(step, "apply"):
        return True
    before, lease = _as(Admission, step.before), _text(step, "lease")
    known = before.leases[lease]
    return before.live.get(known.step) == lease and known.gen == step.call.args["gen"]


def _a_timeout_is_answered(step: Step) -> bool:
    """A body after its timeout is stale; before it, no second request leaves for the step."""
    before = _as(Admission, step.before)
    if _committed(step, "acquire"):
        return _text(step, "step") not in before.live
    if step.call.op != "apply" or step.answer is None:
        return True
    lease = before.leases.get(str(step.call.args.get("lease")))
    late = lease is not None and lease.expired_ms is not None
    return not late or step.answer.verb is Verb.DUPLICATE or step.answer.reason in ("stale_gen", "schema")


def _sweep(at: Admission) -> None:
    """What the sweeper does: expire what is silent, and after its time reclaim it."""
    for lease in list(at.live.values()):
        at.decide("expire", {"lease": lease})
    at.elapse(at.reclaim_ms)
    for lease in [lease for lease, known in at.leases.items() if not known.gone]:
        at.decide("reclaim", {"lease": lease, "cancelled": False})


def _no_slot_leaks(model: Model) -> bool:
    at = _as(Admission, model)
    _sweep(at)
    return at.in_flight == 0


def _every_step_can_commit(model: Model) -> bool:
    at = _as(Admission, model)
    _sweep(at)
    for step in sorted({lease.step for lease in at.leases.values()} - at.committed.keys()):
        lease: Mapping[str, object] = at.decide("acquire", {"step": step, "lease": f"retry of {step}"}).fields
        if not lease or at.decide("apply", {**lease, "digest": "retried"}).verb is not Verb.COMMIT:
            return False
        at.decide("release", {"lease": lease["lease"]})
    return True


ADMISSION = (
    Property("P1 in flight stays within the bound", _in_flight_within_the_bound),
    Property("P2 a step commits at most once", _one_commit_a_step),
    Property("P3 a commit's lease and gen were live", _by_a_live_lease),
    Property("P4 a timeout gives a stale body, or no second send", _a_timeout_is_answered),
    Property("L1 no slot leaks", live=_no_slot_leaks),
    Property("L2 every step can commit", live=_every_step_can_commit),
)


PROPERTIES: Mapping[str, Sequence[Property]] = {
    "transcript": TRANSCRIPT,
    "histogram": HISTOGRAM,
    "judge": JUDGE,
    "admission": ADMISSION,
}
"""Fence → its properties; the part of a name before the first blank is how the models' docstrings call it."""
