"""Fence 12, join: completion is a barrier, not the first 200.

Problem   a case asks several attempts at once. The first answer looks like completion, a slow twin's second answer is
          counted again, one of an older window joins the new one, and what an aborted case still spends is spent twice.
States    a case: NEW ── admit ──▶ OPEN ── result, the last one ──▶ JOINED ── commit ──▶ COMMITTED
                   │                │
                   │ over budget    └── expire, window exhausted ──▶ ABORTED, inconclusive
                   └──────────────────────────────────────────────▶ ABORTED
Invariants
  P1 a case that has ended stays as it ended: nothing joins it any more.
  P2 a refused result joins nothing and spends nothing.
  P3 an ABORTED case is inconclusive, never a pass.
  P4 remaining is the budget less what windows hold and have spent; it is never below 0, and no window overspends.
  P5 a verdict waits for every expected attempt, once each.
  P6 a result joins the window that it was made for.
  L1 every case can be brought to its end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from bus.models.model import Answer, Model, commit, duplicate, reject

__all__ = ["Case", "Join", "State", "window_of"]

MAX_ATTEMPTS = 1000


class State(StrEnum):
    """Where a case stands. One that is not known yet is new."""

    OPEN = "OPEN"
    JOINED = "JOINED"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


def window_of(case: str, expected: Sequence[str], budget_epoch: int) -> str:
    """The name of a window: the same case, the same set of attempts and the same budget give the same."""
    text = json.dumps([case, sorted(set(expected)), budget_epoch], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(slots=True)
class Case:
    """One case and its window."""

    state: State
    expected: tuple[str, ...] = ()
    window: str = ""
    cost: int = 0
    """What the window holds of the budget; 0 for a case that never opened."""
    joined: dict[str, int] = field(default_factory=dict)
    """Attempt → tokens."""
    verdict: str | None = None

    @property
    def spent(self) -> int:
        return sum(self.joined.values())

    @property
    def closed(self) -> bool:
        return self.state in (State.COMMITTED, State.ABORTED)

    def abort(self) -> None:
        self.state = State.ABORTED
        self.verdict = "inconclusive"


class Join(Model):
    """The cases that share one budget."""

    FENCE = "join"
    CONFIG = "budget int, budget_epoch int"
    OPS: ClassVar = {
        "admit": "case str, expected strs, window_cost int",
        "result": "case str, attempt str, window str, tokens int, ok bool",
        "commit": "case str, verdict str",
        "expire": "case str",
    }

    def __init__(self, *, budget: int, budget_epoch: int, draw: Callable[[], str] | None = None) -> None:
        """`budget` in tokens; `budget_epoch` tells the windows of one budget from those of the one before."""
        super().__init__(draw=draw)
        self.budget_epoch = budget_epoch
        self.budget = budget
        self.remaining = budget
        self.cases: dict[str, Case] = {}

    def admit(self, *, case: str, expected: Sequence[str], window_cost: int) -> Answer:
        if len(set(expected)) > MAX_ATTEMPTS:
            return reject("schema")
        window = window_of(case, expected, self.budget_epoch)
        if known := self.cases.get(case):
            if known.closed:
                return reject("case_closed")
            if self._is_another(known, window):
                return reject("expected_mismatch")
            return duplicate(window=window, remaining=self.remaining)
        if self.remaining < window_cost:
            self.cases[case] = Case(State.ABORTED, verdict="inconclusive")
            return reject("over_budget")

        self.remaining -= window_cost
        self.cases[case] = Case(State.OPEN, tuple(sorted(set(expected))), window, window_cost)
        return commit(window=window, remaining=self.remaining)

    def result(self, *, case: str, attempt: str, window: str, tokens: int, ok: bool) -> Answer:
        at = self.cases.get(case)
        if at is None:
            return reject("unknown_case")
        if at.closed:
            return reject("late", state=at.state.value)
        if self._is_another(at, window):
            return reject("window_mismatch", state=at.state.value)
        if attempt in at.joined:
            return reject("duplicate_attempt", state=at.state.value)
        if attempt not in at.expected:
            return reject("unknown_attempt", state=at.state.value)
        if at.spent + tokens > at.cost:
            at.abort()
            return reject("window_exhausted", state=at.state.value)

        at.joined[attempt] = tokens
        if self._is_complete(at):
            at.state = State.JOINED
        return commit(state=at.state.value)

    def commit(self, *, case: str, verdict: str) -> Answer:
        at = self.cases.get(case)
        if at is not None and at.state is State.COMMITTED:
            return duplicate(remaining=self.remaining) if at.verdict == verdict else reject("already_committed")
        if at is None or at.state is not State.JOINED:
            return reject("not_joined")

        at.state, at.verdict = State.COMMITTED, verdict
        self.remaining += at.cost - at.spent
        return commit(remaining=self.remaining)

    def expire(self, *, case: str) -> Answer:
        at = self.cases.get(case)
        if at is None:
            return reject("unknown_case")
        if at.state is not State.OPEN:
            return reject("not_open")

        at.abort()
        return commit()

    def _is_another(self, at: Case, window: str) -> bool:
        """Whether this speaks of another window than the one that is open: another set, or an older budget."""
        return at.window != window

    def _is_complete(self, at: Case) -> bool:
        """Whether nobody is missing. A failed attempt has come too."""
        return at.joined.keys() == set(at.expected)

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "remaining": self.remaining,
            "cases": {
                case: {
                    "state": at.state.value,
                    "verdict": at.verdict,
                    "joined": sorted(at.joined),
                    "spent": at.spent,
                }
                for case, at in self.cases.items()
            },
        }
