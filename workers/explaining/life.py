"""A run's life as steps: admitted, claimed, written about, sealed or ended as a hole, closed over."""

from __future__ import annotations

from workers.explaining.entries import Entry, given, whole
from workers.explaining.story import BUS, PLANNER, Hole, Kind, Lane, Look, Seal, plain
from workers.explaining.telling import Telling, known_as, many, short

__all__ = ["HANDLERS", "end_as_hole", "unfit"]


def _admit(told: Telling, entry: Entry) -> None:
    if told.ask(entry, PLANNER, "admits the run"):
        return
    minted = entry.part("judge.mint")
    notes = ""
    if minted is not None:
        facts = told.facts
        facts.candidate, facts.judge = plain(given(minted, "candidate")), plain(given(minted, "judge"))
        facts.judge_epoch = whole(minted.args.get("epoch"))
        identities = f"candidate {known_as(facts.candidate)} and judge {known_as(facts.judge)}"
        notes = f"bound to {identities}, epoch {facts.judge_epoch}"
    told.facts.admitted = True
    source = entry.text("source")
    if not source:
        told.say(entry, PLANNER, BUS, "admits the run", notes)
        return
    why = entry.part("histogram.abandon")
    if why is not None:
        end_as_hole(told, entry, PLANNER, plain(given(why, "why")), f"it was this hole in batch {plain(source)}")
        return
    written = entry.part("plane.write")
    head = plain(written.args.get("body")) if written is not None else ""
    told.facts.seal = Seal(head, 0, "", None)
    told.say(
        entry, PLANNER, BUS, f"takes the run over as batch {plain(source)} sealed it", notes, f"head {short(head)}"
    )


def _abandon(told: Telling, entry: Entry) -> None:
    if not told.ask(entry, PLANNER, "names the run a hole"):
        end_as_hole(told, entry, PLANNER, entry.text("why"), "it was never admitted")


def _claim(told: Telling, entry: Entry) -> None:
    if entry.part("histogram.abandon") is not None:
        exhausted = next((line.reason for line in entry.lines if line.verb == "reject"), None)
        why = exhausted or plain(given(entry.lines[0], "why") or "poison")
        who = told.actor(entry)
        told.preempted(entry, Kind.WORKER)
        ended = {
            "poison": "it was delivered as often as the batch allows, and every worker that held it went silent",
            "retries_exhausted": "its compute budget was used up",
        }.get(why, "its last claim was refused")
        end_as_hole(told, entry, who, why, ended, text="claims")
        return
    if told.ask(entry, told.actor(entry), "claims", _late(told, entry)):
        return
    leased = entry.part("completion.lease") or entry.part("transcript.lease")
    gen = whole(leased.answer.get("gen")) if leased is not None else 0
    lane = Lane(Kind.WORKER, entry.text("consumer"), gen)
    again = entry.text("entry") in told.delivered
    told.preempted(entry, Kind.WORKER)
    if again:
        told.say(entry, BUS, lane, "the same message again", look=Look.DELIVERED)
    expired = len(entry.parts("admission.expire"))
    left = f"{many(expired, 'model call')} of its predecessor still under way" if expired else ""
    told.take(entry, lane)
    transcript = entry.part("transcript.lease")
    length = whole(transcript.answer.get("length")) if transcript is not None else 0
    told.say(entry, lane, BUS, f"claims: generation {gen}", left, f"finds {many(length, 'event')}" if length else "")


def _late(told: Telling, entry: Entry) -> str:
    """A note for a claim that was refused because it came late."""
    refusal = entry.refusal
    reason = refusal.reason if refusal is not None else None
    return {
        "duplicate_entry": "a second message of the run: taken off",
        "not_owner": "the message is not its own any more",
        "lease_reused": "a late copy of an old claim",
        "ended": "the run is over: the message is taken off",
    }.get(reason or "", "")


def _append(told: Telling, entry: Entry) -> None:
    events = entry.number("events")
    text = f"appends {many(events, 'event')}"
    if not told.ask(entry, told.actor(entry), text):
        told.say(entry, told.actor(entry), BUS, text, f"up to event {entry.number('seq') + events - 1}")


def _write(told: Telling, entry: Entry) -> None:
    text = f"has written {plain(entry.text('path'), 60)}"
    if not told.ask(entry, told.actor(entry), text):
        told.say(entry, told.actor(entry), BUS, text)


def _resolve(told: Telling, entry: Entry) -> None:
    text = f"fills place {entry.number('seq')}, whose answer will never come"
    if not told.ask(entry, told.actor(entry), text):
        told.say(entry, told.actor(entry), BUS, text)


def _seal(told: Telling, entry: Entry) -> None:
    lane = told.actor(entry)
    if told.ask(entry, lane, "seals its answer"):
        return
    events, head = entry.number("seq"), entry.text("head")
    recorded = entry.part("workspace.record")
    tree = entry.text("tree_hash") if recorded is not None else ""
    told.facts.seal = Seal(plain(head), events, plain(tree), lane)
    told.say(
        entry, lane, BUS, f"seals {many(events, 'event')}", f"head {short(head)}", f"tree {short(tree)}" if tree else ""
    )
    told.let_go(entry, Kind.WORKER, "sealed")


def _yield(told: Telling, entry: Entry) -> None:
    lane = told.actor(entry)
    if not told.ask(entry, lane, "hands the run back"):
        told.say(entry, lane, BUS, "hands the run back", unfit(entry))
        told.let_go(entry, Kind.WORKER, "handed it back")


def unfit(entry: Entry) -> str:
    """A note for a hand-back: whether its machine was the reason."""
    return "its machine could not do it" if entry.text("machine") else ""


def _hole(told: Telling, entry: Entry) -> None:
    lane, why = told.actor(entry), plain(entry.text("why"))
    if not told.ask(entry, lane, f"ends the run: {why}"):
        ended = "an operator ended it" if lane is PLANNER else f"{lane.title} ended it"
        end_as_hole(told, entry, lane, why, ended)


def end_as_hole(told: Telling, entry: Entry, lane: Lane, why: str, ended_by: str, text: str = "ends the run") -> None:
    """The run ends here, whoever had it, and the planner is told."""
    told.say(entry, lane, BUS, text, look=Look.HOLE, reason=plain(why))
    for kind, hold in ((Kind.WORKER, told.holder), (Kind.SCORER, told.scorer)):
        if hold is not None and hold.lane != lane:
            told.say(entry, BUS, hold.lane, "its lease is void", look=Look.TAKEN)
        told.let_go(entry, kind, f"the run ended as a hole ({plain(why)})")
    told.facts.hole = Hole(plain(why), ended_by, entry.id)
    told.say(entry, BUS, PLANNER, "result: a hole")


def _requeue(told: Telling, entry: Entry) -> None:
    what = "the sealed run's" if entry.text("group") == "scorer" else "the run's"
    text = f"emits {what} message anew: it was lost"
    if not told.ask(entry, PLANNER, text):
        told.say(entry, PLANNER, BUS, text)


def _restarted(told: Telling, entry: Entry) -> None:
    if not told.facts.admitted or told.facts.ended:
        return
    told.say(entry, BUS, BUS, "the server was restarted: every lease before is void", look=Look.TAKEN)
    for kind in (Kind.WORKER, Kind.SCORER):
        told.let_go(entry, kind, "its lease was made void by a restart of the server")


def _close(told: Telling, entry: Entry) -> None:
    refusal = entry.refusal
    if refusal is not None and refusal.verb != "reject":
        return
    if not told.steps or entry.repeated or told.facts.closed:
        return
    if refusal is not None:
        told.ask(entry, PLANNER, "closes the batch")
        if refusal.reason == "below_quorum":
            told.facts.closed = "closed below its quorum: there is no pass rate"
        return
    snapshot = f"snapshot {short(entry.text('snapshot_id'))}"
    told.facts.closed = f"closed over {many(entry.number('accepted'), 'verdict')}, {snapshot}"
    told.say(entry, PLANNER, BUS, "closes the batch", snapshot)


def _heartbeat(told: Telling, entry: Entry) -> None:
    kind = Kind.SCORER if entry.text("group") == "scorer" else Kind.WORKER
    for line in entry.lines:
        lane = told.lanes.get(str(line.args.get("lease_id"))) or told.actor(entry, kind)
        step = Entry(entry.id, entry.command, entry.envelope, (line,))
        told.ask(step, lane, "says that it is alive")


HANDLERS = {
    "abandon": _abandon,
    "admit": _admit,
    "adopt": _admit,
    "append": _append,
    "claim": _claim,
    "close": _close,
    "heartbeat": _heartbeat,
    "hole": _hole,
    "requeue": _requeue,
    "resolve": _resolve,
    "restarted": _restarted,
    "seal": _seal,
    "write": _write,
    "yield": _yield,
}
