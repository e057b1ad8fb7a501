"""Fence 2: one planner step, one side effect.

What is looked at: the life of every intent and of every undo, from its row to its end. The licence to call is `sent`:
whatever happened outside happened under one, so an intent that has two may have two effects.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import SLACK_MS, Fence, Setting

__all__ = ["Intent", "Outbox"]

UNDO = "~undo"
FINAL = ("committed", "failed", "compensated", "stuck")


@dataclass(slots=True)
class Intent:
    """One row."""

    id: str
    gen: int
    tool: str
    args: object
    run: str
    """Empty where no run was named."""
    state: str = "queued"
    executor: str = ""
    executors: set[str] = field(default_factory=set)
    sent_ms: int = -1
    """When its call was about to leave; below 0: it never was."""

    @property
    def final(self) -> bool:
        """It has ended."""
        return self.state in FINAL

    @property
    def undoes(self) -> str | None:
        """The intent that this is the undo of."""
        return self.id.removesuffix(UNDO) if self.id.endswith(UNDO) else None


class Outbox(Fence):
    """See the module's text. `intents` is read by the predicates that join this fence with others."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """`ack_bound_ms` and `inverses` are the batch's."""
        super().__init__()
        self._bound, self._inverses, self._timed = setting.limit("ack_bound_ms"), setting.inverses, setting.timed
        self.intents: dict[str, Intent] = {}
        self._p1 = board.add("outbox.P1", "an intent is one tool and its arguments, however often put", "puts")
        self._p2 = board.add("outbox.P2", "what is called is what was put", "claims")
        self._p3 = board.add("outbox.P3", "only a queued intent is claimed, at its generation", "claims")
        self._p4 = board.add("outbox.P4", "an executor claims an intent once", "claims")
        self._p5 = board.add("outbox.P5", "each call leaves under the latest claim", "calls sent")
        self._p6 = board.add("outbox.P6", "an intent's call leaves at most once", "calls sent")
        self._p7 = board.add("outbox.P7", "each outcome comes from the claim, at its generation", "outcomes")
        self._p8 = board.add("outbox.P8", "an intent has one outcome", "outcomes")
        self._p9 = board.add("outbox.P9", "each success echoes its intent", "successes")
        self._p10 = board.add("outbox.P10", "what was sent is never queued again", "intents queued again")
        self._p11 = board.add("outbox.P11", "an undo is that of a call in doubt or committed, by its inverse", "undos")
        self._p12 = board.add("outbox.P12", "a call is given up only behind its bound", "calls given up")
        self._p13 = board.add("outbox.P13", "at the close every intent has ended", "intents and undos")
        self.on = {
            "put": self._put,
            "claim": self._claim,
            "sent": self._sent,
            "complete": self._complete,
            "advance": self._advance,
            "recover": self._requeue,
            "revoke": self._revoke,
        }
        self.also = {
            "put duplicate": self._put_again,
            "recover compensate": self._compensate,
            "recover reject": self._stuck,
        }

    def _at(self, said: Said) -> Intent | None:
        return self.intents.get(said.args["intent_id"])

    def _put(self, said: Said) -> None:
        args, name = said.args, said.args["intent_id"]
        self._p1.see(name not in self.intents and not name.endswith(UNDO), said, "{} was put before", name)
        run = said.envelope.get("run", "")
        self.intents[name] = Intent(name, args["gen"], args["tool"], _object(args["args"]), run)

    def _put_again(self, said: Said) -> None:
        at, args = self._at(said), said.args
        is_same = at is not None and (at.tool, at.args) == (args["tool"], _object(args["args"]))
        self._p1.see(is_same, said, "{} is another call", args["intent_id"])

    def _claim(self, said: Said) -> None:
        at, executor = self._at(said), said.args["executor"]
        is_due = at is not None and at.state == "queued" and at.gen == said.args["gen"]
        self._p3.see(is_due, said, "the intent is {}", at and at.state)
        if at is None:
            return
        is_stored = (at.tool, at.args) == (said.answer["tool"], _object(said.answer["args"]))
        self._p2.see(is_stored, said, "{} is another call", at.id)
        self._p4.see(executor not in at.executors, said, "{} claimed {} before", executor, at.id)
        at.executors.add(executor)
        at.state, at.executor = "executing", executor

    def _sent(self, said: Said) -> None:
        at = self._at(said)
        is_claimed = at is not None and at.state == "executing" and self._is_own(at, said)
        self._p5.see(is_claimed, said, "the intent is {}, claimed by {}", at and at.state, at and at.executor)
        self._p6.see(at is not None and at.sent_ms < 0, said, "it had left before")
        if at is not None:
            at.state, at.sent_ms = "awaiting_ack", said.ms

    def _complete(self, said: Said) -> None:
        at, ok = self._at(said), said.args["ok"]
        is_claimed = at is not None and bool(at.executor) and self._is_own(at, said)
        self._p7.see(is_claimed, said, "the claim is {}'s, of generation {}", at and at.executor, at and at.gen)
        self._p8.see(at is not None and at.state in ("executing", "awaiting_ack"), said, "it is {}", at and at.state)
        if ok:
            self._p9.see(said.args.get("echo") == said.args["intent_id"], said, "the echo is another's")
        if at is None:
            return
        at.state = "committed" if ok else "failed"
        if at.undoes is not None and (undone := self.intents.get(at.undoes)) is not None:
            undone.state = "compensated" if ok else "stuck"

    def _is_own(self, at: Intent, said: Said) -> bool:
        executor: str = said.args["executor"]
        gen: int = said.args["gen"]
        return at.executor == executor and at.gen == gen

    def _advance(self, said: Said) -> None:
        at = self._at(said)
        if at is not None:
            at.gen = said.answer["gen"]

    def _requeue(self, said: Said) -> None:
        at = self._at(said)
        self._p10.see(at is not None and at.state == "executing", said, "it was {}", at and at.state)
        if at is not None:
            at.state = "queued"

    def _revoke(self, said: Said) -> None:
        at = self._at(said)
        self._begin_undo(said, at, at is not None and at.state == "committed")

    def _compensate(self, said: Said) -> None:
        at = self._at(said)
        if at is not None and at.state == "compensating":
            return  # asked again, answered again
        self._give_up(said, at)
        self._begin_undo(said, at, at is not None and at.state == "awaiting_ack")

    def _stuck(self, said: Said) -> None:
        at = self._at(said)
        if said.reason != "stuck" or at is None or at.state == "stuck":
            return
        self._give_up(said, at)
        at.state = "stuck"
        if at.undoes is not None and (undone := self.intents.get(at.undoes)) is not None:
            undone.state = "stuck"

    def _give_up(self, said: Said, at: Intent | None) -> None:
        if self._timed:
            over = at is not None and at.sent_ms >= 0 and said.ms >= at.sent_ms + self._bound - SLACK_MS
            self._p12.see(over, said, "its bound was not over")

    def _begin_undo(self, said: Said, at: Intent | None, is_due: bool) -> None:
        name, inverse = said.args["intent_id"] + UNDO, self._inverses.get(at.tool) if at else None
        is_named = said.answer.get("undo_id") == name and inverse is not None and name not in self.intents
        self._p11.see(is_due and is_named, said, "the undo of an intent that is {}", at and at.state)
        if at is not None:
            at.state = "compensating"
            self.intents[name] = Intent(name, 0, inverse or "", at.args, at.run)

    def end(self) -> None:
        """An effect that is in doubt at the close is in nobody's count."""
        for name, at in self.intents.items():
            self._p13.see(at.final, name, "it is {}", at.state)


def _object(args: object) -> object:
    """A tool's arguments travel as JSON text, and stand as an object where they were presented."""
    said: object = json.loads(args) if isinstance(args, str) else args
    return said
