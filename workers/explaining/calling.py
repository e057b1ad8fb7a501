"""Calls of models and tools as steps, and what they cost."""

from __future__ import annotations

from collections import Counter

from bus.export_format import Line
from workers.explaining.entries import Entry, given, whole
from workers.explaining.story import BUS, JUDGE, MODEL, PLANNER, TOOLS, Attempt, Effect, Kind, Look, plain
from workers.explaining.telling import Telling, many

__all__ = ["HANDLERS"]

_UNDO = "~undo"


# --- models -------------------------------------------------------------------------------------------------


def _number(entry: Entry) -> str:
    """`question 2` of a step `c#1~0.2`."""
    return f"question {plain(entry.text('step')).rpartition('.')[2]}"


def _open(told: Telling, entry: Entry) -> None:
    judging = entry.command == "open_judge"
    lane = told.actor(entry, Kind.SCORER if judging else Kind.WORKER)
    attempt = entry.number("attempt")
    text = f"asks {_number(entry)}, attempt {attempt}"
    if told.ask(entry, lane, text):
        return
    key = (entry.text("step"), attempt)
    told.facts.attempts[key] = Attempt(judging)
    told.places[entry.text("desk_lease")] = key
    target = JUDGE if judging else MODEL
    told.say(entry, lane, target, text, f"{many(entry.number('estimate'), 'token')} reserved")


def _bill(told: Telling, entry: Entry) -> str:
    """What the chunks say has been spent: a note for the arrow, empty when nothing was new."""
    tokens = 0
    for line in entry.lines:
        if line.fence != "ledger":
            continue
        attempt = told.facts.attempts.get((str(given(line, "step")), whole(given(line, "attempt"))))
        if attempt is None:
            continue
        if line.op == "chunk" and line.verb == "commit":
            tokens += whole(given(line, "tokens"))
            attempt.billed, attempt.durable = whole(line.answer.get("billed")), whole(line.answer.get("durable"))
        elif line.op == "reconcile" and line.verb == "commit":
            attempt.billed, attempt.state = whole(line.args.get("gateway_billed")), "settled"
        elif line.op == "cut" and line.verb == "commit":
            attempt.state = "cut"
    return f"{many(tokens, 'token')} charged" if tokens else ""


def _bind(told: Telling, entry: Entry) -> None:
    judging = entry.command == "bind_judge"
    lane = told.actor(entry, Kind.SCORER if judging else Kind.WORKER)
    spent = _bill(told, entry)
    refusal = entry.refusal
    if refusal is not None:
        still = f"{spent} all the same" if spent else ""
        told.ask(entry, lane, f"brings the answer to {_number(entry)}", still)
        attempt = told.facts.attempts.get((entry.text("step"), entry.number("attempt")))
        if attempt is not None and attempt.state == "open":
            attempt.state = "refused"
        return
    if told.ask(entry, lane, f"brings the answer to {_number(entry)}"):
        return
    told.facts.attempts.setdefault((entry.text("step"), entry.number("attempt")), Attempt(judging)).state = "answered"
    place = "" if judging else f"bound as event {entry.number('seq')}"
    told.say(entry, JUDGE if judging else MODEL, lane, f"answers {_number(entry)}", place, spent)


def _flush(told: Telling, entry: Entry) -> None:
    spent = _bill(told, entry)
    if not told.ask(entry, told.actor(entry), "says what has been spent", spent):
        told.say(entry, told.actor(entry), BUS, "says what has been spent", spent)


def _drop(told: Telling, entry: Entry) -> None:
    spent = _bill(told, entry)
    lane = told.holder.lane if told.holder is not None else PLANNER
    if told.scorer is not None and entry.text("desk") == "judge":
        lane = told.scorer.lane
    text = f"gives {_number(entry)}, attempt {entry.number('attempt')} up"
    if told.ask(entry, lane, text, spent):
        return
    attempt = told.facts.attempts.get((entry.text("step"), entry.number("attempt")))
    cancelled = entry.envelope.get("cancelled") is True
    if attempt is not None and attempt.state == "open":
        attempt.state = "cancelled" if cancelled else "given up"
    settled = f"settled at {many(attempt.billed, 'token')}" if attempt is not None and cancelled else spent
    told.say(entry, lane, BUS, text, settled)


def _sweep(told: Telling, entry: Entry) -> None:
    if told.ask(entry, PLANNER, "sweeps places that were left behind"):
        return
    _bill(told, entry)
    for line in entry.parts("admission.reclaim"):
        attempt = told.facts.attempts.get(told.places.get(str(line.args.get("lease")), ("", 0)))
        settled = f"its call settled at {many(attempt.billed, 'token')}" if attempt is not None else ""
        told.say(entry, PLANNER, BUS, "frees a place that was left behind", settled)


# --- tools --------------------------------------------------------------------------------------------------


def _put_tools(told: Telling, entry: Entry) -> None:
    lane = told.actor(entry)
    puts = entry.parts("outbox.put")
    tools = Counter(plain(given(line, "tool"), 40) for line in puts)
    names = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in tools.items())
    text = f"announces {many(len(puts) or entry.number('intents'), 'call')}" + (f": {names}" if names else "")
    if told.ask(entry, lane, text):
        return
    for line in puts:
        told.facts.effects[str(given(line, "intent_id"))] = Effect(plain(given(line, "tool"), 40))
    told.say(entry, lane, TOOLS, text)


def _call(told: Telling, intent: str) -> str:
    """`book 2.0`, `cancel 2.0 (undo)`: the tool, and its place in the conversation."""
    effect = told.facts.effects.get(intent.removesuffix(_UNDO))
    place = plain(intent.removesuffix(_UNDO)).rpartition("~")[2]
    return ("the undo of " if intent.endswith(_UNDO) else "") + f"{effect.tool if effect else 'call'} {place}"


def _set(told: Telling, intent: str, state: str) -> None:
    effect = told.facts.effects.get(intent.removesuffix(_UNDO))
    if effect is not None:
        effect.state = (
            {"committed": "undone", "failed": "undo failed", "stuck": "stuck"}.get(state, "being undone")
            if (intent.endswith(_UNDO))
            else state
        )


def _state_after(lines: list[Line]) -> str:
    said = [str(line.answer["state"]) for line in lines if isinstance(line.answer.get("state"), str)]
    return said[-1] if said else ""


def _tool_claim(told: Telling, entry: Entry) -> None:
    intent, executor = (
        entry.text("intent_id"),
        f"executor {plain(entry.text('executor'), 12)} at {plain(entry.text('consumer'), 40)}",
    )
    text = f"claims {_call(told, intent)}"
    recovered, completed = entry.parts("outbox.recover"), entry.part("outbox.complete")
    if recovered and entry.part("outbox.claim") is None:
        told.ask(entry, TOOLS, text, "its executor before fell silent after the call had left")
        if recovered[0].verb == "compensate":
            _undo(told, entry, intent)
        elif recovered[0].verb == "reject":
            _set(told, intent, "stuck")
        return
    if told.ask(entry, TOOLS, text, executor):
        return
    if completed is not None:
        _set(told, intent, "failed")
        why = plain(completed.args.get("observation") or "")
        told.say(entry, BUS, TOOLS, f"{_call(told, intent)} is given up", why, look=Look.TAKEN)
        return
    _set(told, intent, "claimed")
    told.say(entry, TOOLS, BUS, text, executor, "its executor before fell silent" if recovered else "")


def _tool_sent(told: Telling, entry: Entry) -> None:
    text = f"sends {_call(told, entry.text('intent_id'))}"
    if not told.ask(entry, TOOLS, text):
        _set(told, entry.text("intent_id"), "sent")
        told.say(entry, TOOLS, BUS, text)


def _tool_complete(told: Telling, entry: Entry) -> None:
    intent = entry.text("intent_id")
    text = f"says that {_call(told, intent)} {'succeeded' if entry.envelope.get('ok') is True else 'failed'}"
    if not told.ask(entry, TOOLS, text):
        state = _state_after(entry.parts("outbox.complete"))
        _set(told, intent, state or "committed")
        told.say(entry, TOOLS, BUS, text, "" if state in ("committed", "failed", "") else f"now {state}")


def _tool_requeue(told: Telling, entry: Entry) -> None:
    text = f"emits the message of {_call(told, entry.text('intent_id'))} anew: it was lost"
    if not told.ask(entry, PLANNER, text):
        told.say(entry, PLANNER, BUS, text)


def _join(told: Telling, entry: Entry) -> None:
    lane = told.actor(entry)
    results = entry.parts("join.result")
    text = f"joins {many(len(results) or entry.number('intents'), 'result')}"
    if not told.ask(entry, lane, text):
        told.say(entry, lane, BUS, text, f"as event {entry.number('seq')}")


def _turn(told: Telling, entry: Entry) -> None:
    lane, following = told.actor(entry), entry.number("conversation") + 1
    refusal = entry.refusal
    text = f"gives conversation {following - 1} up"
    undone, given_up = entry.parts("outbox.revoke"), entry.parts("outbox.complete")
    if refusal is not None or entry.repeated:
        told.ask(
            entry, lane, text, "what it did outside is not undone yet" if refusal and refusal.verb == "in_doubt" else ""
        )
        return
    begun = entry.part("indoubt.turn") is not None
    if begun:
        told.facts.turns += 1
        told.say(entry, lane, BUS, f"{text}: conversation {following} begins")
    else:
        told.say(entry, lane, BUS, text, "once what it did outside is undone", look=Look.DOUBT, reason="in_flight")
    for line in undone:
        _undo(told, entry, str(line.args.get("intent_id")))
    for line in given_up:
        intent = str(line.args.get("intent_id"))
        _set(told, intent, "failed")
        told.say(entry, BUS, TOOLS, f"{_call(told, intent)} is given up before it left", look=Look.TAKEN)


def _undo(told: Telling, entry: Entry, intent: str) -> None:
    _set(told, intent, "being undone")
    told.say(entry, BUS, TOOLS, f"undo {_call(told, intent)}", look=Look.TAKEN)


HANDLERS = {
    "bind_call": _bind,
    "bind_judge": _bind,
    "drop_call": _drop,
    "flush": _flush,
    "join": _join,
    "open_call": _open,
    "open_judge": _open,
    "put_tools": _put_tools,
    "sweep": _sweep,
    "tool_claim": _tool_claim,
    "tool_complete": _tool_complete,
    "tool_requeue": _tool_requeue,
    "tool_sent": _tool_sent,
    "turn": _turn,
}
