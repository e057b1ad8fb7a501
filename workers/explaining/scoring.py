"""The judging of a sealed run as steps: who held it, what was said, which verdict counts."""

from __future__ import annotations

from workers.explaining.entries import Entry, given, whole
from workers.explaining.life import end_as_hole, unfit
from workers.explaining.story import BUS, PLANNER, Kind, Lane, Look, Score, plain
from workers.explaining.telling import Telling, known_as, short

__all__ = ["HANDLERS"]


def _claim(told: Telling, entry: Entry) -> None:
    lane = told.actor(entry, Kind.SCORER)
    if entry.part("histogram.abandon") is not None:
        told.preempted(entry, Kind.SCORER)
        why = plain(given(entry.lines[0], "why") or "judge_failed")
        ended = "it was delivered to scorers as often as the batch allows, and every one that held it went silent"
        end_as_hole(told, entry, lane, why, ended, text="claims it for scoring")
        return
    if told.ask(entry, lane, "claims it for scoring"):
        return
    fenced = entry.part("histogram.fence")
    epoch = whole(fenced.args.get("epoch")) if fenced is not None else 0
    again = entry.text("entry") in told.delivered
    lane = Lane(Kind.SCORER, entry.text("consumer"), epoch)
    told.preempted(entry, Kind.SCORER)
    if again:
        told.say(entry, BUS, lane, "the same message again", look=Look.DELIVERED)
    told.take(entry, lane)
    digest = short(fenced.args.get("digest")) if fenced is not None else ""
    told.say(entry, lane, BUS, f"claims it for scoring: epoch {epoch}", f"over head {digest}")


def _score(told: Telling, entry: Entry) -> None:
    lane, verdict = told.actor(entry, Kind.SCORER), plain(entry.text("bin"), 60)
    judge, candidate = plain(entry.text("observed_judge")), plain(entry.text("observed_candidate"))
    text, refusal = f"says {verdict}", entry.refusal
    mistaken = refusal is not None and (refusal.reason or "").endswith("_mismatch") and refusal.fence == "judge"
    another = f"judged by {known_as(judge)}, on answers of {known_as(candidate)}" if mistaken else ""
    if entry.part("histogram.abandon") is not None and refusal is not None:
        told.ask(entry, lane, text, another)
        ended = f"another judge or candidate ({judge}, {candidate}) was observed than the one that was bound"
        end_as_hole(told, entry, lane, refusal.reason or "judge_mismatch", ended)
        return
    if told.ask(entry, lane, text, another):
        if mistaken:
            told.let_go(entry, Kind.SCORER, "its verdict does not count until somebody decides about it")
        return
    epoch = entry.number("judge_epoch")
    value = plain(entry.text("value"), 60)
    told.facts.score = Score(verdict, value, plain(entry.text("head")), judge, candidate, epoch, lane)
    told.say(
        entry, lane, BUS, text, f"over head {short(entry.text('head'))}", f"as judge {known_as(judge)}, epoch {epoch}"
    )
    told.let_go(entry, Kind.SCORER, "scored")
    told.say(entry, BUS, PLANNER, f"result: {verdict}")


def _yield(told: Telling, entry: Entry) -> None:
    lane = told.actor(entry, Kind.SCORER)
    if not told.ask(entry, lane, "hands the score back"):
        told.say(entry, lane, BUS, "hands the score back", unfit(entry))
        told.let_go(entry, Kind.SCORER, "handed it back")


def _hole(told: Telling, entry: Entry) -> None:
    lane, why = told.actor(entry, Kind.SCORER), plain(entry.text("why"))
    if not told.ask(entry, lane, f"ends the run: {why}"):
        ended = "an operator ended it" if lane is PLANNER else f"{lane.title} ended it"
        end_as_hole(told, entry, lane, why, ended)


def _rebind(told: Telling, entry: Entry) -> None:
    judge, candidate = plain(entry.text("judge")), plain(entry.text("candidate"))
    text = f"binds it to judge {known_as(judge)} and candidate {known_as(candidate)}"
    if told.ask(entry, PLANNER, text):
        return
    if told.scorer is not None:
        told.say(entry, BUS, told.scorer.lane, "its lease is void", look=Look.TAKEN)
        told.let_go(entry, Kind.SCORER, "the run was bound to another judge meanwhile")
    rebound = entry.part("judge.rebind")
    epoch = whole(rebound.answer.get("epoch")) if rebound is not None else 0
    told.facts.judge, told.facts.candidate, told.facts.judge_epoch = judge, candidate, epoch
    told.say(entry, PLANNER, BUS, text, f"epoch {epoch}", "to be scored anew")


HANDLERS = {
    "rebind": _rebind,
    "score": _score,
    "score_claim": _claim,
    "score_hole": _hole,
    "score_yield": _yield,
}
