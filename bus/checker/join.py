"""Fence 12: completion is a barrier, not the first 200.

What is looked at: every window from its announcement to COMMITTED or ABORTED, and the tokens that it holds.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from bus.checker.board import Board
from bus.checker.said import Said
from bus.checker.setting import Fence, Setting

__all__ = ["Join"]


@dataclass(slots=True)
class _Window:
    name: str = ""
    expected: frozenset[str] = frozenset()
    cost: int = 0
    state: str = "OPEN"
    tokens: int = 0
    joined: set[str] = field(default_factory=set)


class Join(Fence):
    """See the module's text."""

    def __init__(self, board: Board, setting: Setting) -> None:
        """The budget of windows, and its epoch."""
        super().__init__()
        self._remaining = setting.limit("budget")
        self._epoch = setting.limit("budget_epoch", 0)
        self._cases: dict[str, _Window] = {}
        self._p1 = board.add("join.P1", "nothing joins but into an open window", "results joined")
        self._p2 = board.add(
            "join.P2", "an expected attempt joins its own window, once, within its tokens", "results joined"
        )
        self._p3 = board.add("join.P3", "no verdict but of a window that all have joined", "verdicts")
        self._p4 = board.add("join.P4", "a window is named by its case, attempts and budget epoch", "windows")
        self._p5 = board.add("join.P5", "a case has one window", "windows")
        self._p6 = board.add(
            "join.P6", "what remains of the budget adds up, and is never below 0", "changes of the budget"
        )
        self._p7 = board.add("join.P7", "only an open window expires", "expiries")
        self._p8 = board.add("join.P8", "at the close every window is committed or aborted", "windows")
        self.on = {"admit": self._admit, "result": self._result, "commit": self._commit, "expire": self._expire}
        self.also = {"admit reject": self._over_budget, "result reject": self._exhausted}

    def _admit(self, said: Said) -> None:
        case, expected = said.args["case"], sorted(set(said.args["expected"]))
        self._p5.see(case not in self._cases, said, "{} was announced before", case)
        text = json.dumps([case, expected, self._epoch], ensure_ascii=False, separators=(",", ":"))
        name = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self._p4.see(said.answer["window"] == name, said, "its name is {}", name)
        self._remaining -= said.args["window_cost"]
        self._add_up(said)
        self._cases[case] = _Window(said.answer["window"], frozenset(expected), said.args["window_cost"])

    def _add_up(self, said: Said) -> None:
        adds_up = said.answer["remaining"] == self._remaining >= 0
        self._p6.see(adds_up, said, "told {}, added up {}", said.answer["remaining"], self._remaining)

    def _over_budget(self, said: Said) -> None:
        if said.reason == "over_budget":
            self._cases.setdefault(said.args["case"], _Window()).state = "ABORTED"

    def _result(self, said: Said) -> None:
        args, at = said.args, self._cases.get(said.args["case"])
        self._p1.see(at is not None and at.state == "OPEN", said, "the window is {}", at and at.state)
        if at is None:
            return
        attempt = args["attempt"]
        is_due = attempt in at.expected and attempt not in at.joined and args["window"] == at.name
        at.tokens += args["tokens"]
        self._p2.see(
            is_due and at.tokens <= at.cost, said, "{} into a window with {} of {}", attempt, at.tokens, at.cost
        )
        at.joined.add(attempt)
        if at.state == "OPEN" and at.joined >= at.expected:
            at.state = "JOINED"

    def _exhausted(self, said: Said) -> None:
        if said.reason == "window_exhausted" and (at := self._cases.get(said.args["case"])) is not None:
            at.state = "ABORTED"

    def _commit(self, said: Said) -> None:
        at = self._cases.get(said.args["case"])
        is_whole = at is not None and at.state == "JOINED" and at.joined == at.expected
        self._p3.see(is_whole, said, "the window is {}", at and at.state)
        if at is not None:
            at.state = "COMMITTED"
            self._remaining += at.cost - at.tokens
            self._add_up(said)

    def _expire(self, said: Said) -> None:
        at = self._cases.get(said.args["case"])
        self._p7.see(at is not None and at.state == "OPEN", said, "the window is {}", at and at.state)
        if at is not None:
            at.state = "ABORTED"

    def end(self) -> None:
        """A window that is left open may still be joined."""
        for case, at in self._cases.items():
            self._p8.see(at.state in ("COMMITTED", "ABORTED"), case, "it is {}", at.state)
