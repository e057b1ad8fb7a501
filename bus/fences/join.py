"""Fence 12, join: completion is a barrier, not the first 200.

Problem   a case asks several attempts at once. The first answer looks like completion; a slow twin's second answer is
          counted again; one of an older window joins the new one; and a coordinator that restarts opens a closed case
          once more, with money that is still being spent.

States    of a case
              NEW ── admit ──▶ OPEN ── result, the last one ──▶ JOINED ── commit ──▶ COMMITTED
               │                │
               │ over budget    └── expire, window exhausted ──▶ ABORTED, inconclusive
               └───────────────────────────────────────────────▶ ABORTED, inconclusive
          Nothing leaves COMMITTED or ABORTED. A window is named by the hash of its case, its attempts and the budget's
          epoch, so that a result says which one it was made for.

Invariants
  P1 a case that has ended stays as it ended: nothing joins it any more.
  P2 a refused result joins nothing and spends nothing.
  P3 an ABORTED case is inconclusive, never a pass.
  P4 remaining is the budget less what windows hold and have spent; it is never below 0, and no window overspends.
  P5 a verdict waits for every expected attempt, once each.
  P6 a result joins the window that it was made for.
  L1 every case can be brought to its end.

If a party dies
  | who, when                    | what stands             | what follows                                         |
  |------------------------------|-------------------------|------------------------------------------------------|
  | coordinator, `admit` sent    | perhaps an open window  | asked again with the same set: duplicate             |
  | attempt, before its `result` | an open window          | `expire`: inconclusive, its tokens are not given back|
  | attempt, `result` sent       | perhaps its result      | resent: duplicate_attempt, and nothing is spent again|
  | coordinator, before `commit` | a joined case           | anybody may commit it                                |
  | coordinator, after `commit`  | the verdict             | resent: duplicate; another verdict: already_committed|
  | anybody, after `expire`      | an aborted case         | what comes is late; the case is not opened again     |
  | server                       | what it answered        | everything above, after its restart                  |

A case's state is kept in the row of the run that it belongs to; so each operation names the run beside the case.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeGuard

from bus.errors import InputError
from bus.fences.fence import Channel, Fence, Result, canonical, is_text
from bus.types import Decision, Digest, RunId

__all__ = ["CaseState", "Join", "JoinReason", "JoinResult", "window_of"]


class CaseState(StrEnum):
    """Where an admitted case stands."""

    OPEN = "OPEN"
    """At least one attempt is missing."""
    JOINED = "JOINED"
    """All attempts have come; the verdict has not."""
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"
    """It ended without a verdict."""


class JoinReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed, or more than 1,000 attempts are expected."""
    CASE_CLOSED = "case_closed"
    """The case has ended, and is not opened again."""
    EXPECTED_MISMATCH = "expected_mismatch"
    """The case is open for another set of attempts."""
    OVER_BUDGET = "over_budget"
    """Less remains than the window costs: the case has ended, inconclusive."""
    UNKNOWN_CASE = "unknown_case"
    """No such case was ever admitted."""
    LATE = "late"
    """The case has ended."""
    WINDOW_MISMATCH = "window_mismatch"
    """The result was made for another window."""
    DUPLICATE_ATTEMPT = "duplicate_attempt"
    """The attempt has joined already."""
    UNKNOWN_ATTEMPT = "unknown_attempt"
    """Nobody expects this attempt."""
    WINDOW_EXHAUSTED = "window_exhausted"
    """More tokens than the window has left: the case has ended, inconclusive."""
    ALREADY_COMMITTED = "already_committed"
    """The case has another verdict."""
    NOT_JOINED = "not_joined"
    """An attempt is missing, or the case ended without a verdict."""
    NOT_OPEN = "not_open"
    """Nothing is missing any more, or the case has ended."""


@dataclass(frozen=True, slots=True)
class JoinResult(Result[JoinReason]):
    """The answer of a join operation."""

    window: Digest | None = None
    """`admit`: the name that each result of the case must quote."""
    remaining: int | None = None
    """`admit`, `commit`: tokens of the budget that no window holds or has spent."""
    state: CaseState | None = None
    """`result`: where the case stands after it."""


def window_of(case: str, expected: Sequence[str], budget_epoch: int) -> Digest:
    """The name of a window. The order in which attempts are named does not count, nor how often."""
    return Digest(hashlib.sha256(canonical([case, _as_set(expected), budget_epoch])).hexdigest())


def _as_set(expected: Sequence[str]) -> list[str]:
    return sorted(set(expected))


def _is_set(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and value != [] and all(is_text(item) for item in value)


class Join(Fence[JoinResult]):
    """The cases of one batch, and the budget that their windows share."""

    NAME: ClassVar[str] = "join"

    def __init__(self, channel: Channel) -> None:
        """The batch must have been created with a budget and its epoch."""
        super().__init__(channel)
        self._epoch: int | None = None

    async def admit(self, run: RunId, case: str, expected: Sequence[str], window_cost: int) -> JoinResult:
        """Open the case's window for a set of attempts, and hold `window_cost` tokens. Answers window, remaining.

        Raises InputError when the batch has no budget.
        """
        return await self._ask("admit", run=run, case=case, expected=list(expected), window_cost=window_cost)

    async def result(self, run: RunId, case: str, attempt: str, window: Digest, tokens: int, *, ok: bool) -> JoinResult:
        """Join an attempt, successful or not. Answers state, with most refusals too."""
        return await self._ask("result", run=run, case=case, attempt=attempt, window=window, tokens=tokens, ok=ok)

    async def commit(self, run: RunId, case: str, verdict: str) -> JoinResult:
        """Give a joined case its verdict; what its window did not use comes back. Answers remaining."""
        return await self._ask("commit", run=run, case=case, verdict=verdict)

    async def expire(self, run: RunId, case: str) -> JoinResult:
        """End an open case as inconclusive. Its tokens stay spent: attempts under way may still use them."""
        return await self._ask("expire", run=run, case=case)

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """See `Fence`. `admit` computes the window's name, which the script cannot, and sends the set beside it."""
        if op != "admit":
            return await super().send(op, args)
        case, expected = args.get("case"), args.get("expected")
        window, text = None, b""  # the envelope shows what was presented instead
        if is_text(case) and _is_set(expected):
            window = window_of(case, expected, await self._budget_epoch())
            text = canonical(_as_set(expected))
        return await self._channel.decide("join.admit", {**args, "window": window}, argv={"expected": text})

    async def _budget_epoch(self) -> int:
        if self._epoch is None:
            keys = self._channel.keys
            found = await self._channel.link.command("HGET", keys.batch_row, "budget_epoch")
            if found is None:
                raise InputError(f"batch {keys.batch!r} has no budget on this server")
            self._epoch = int(found)
        return self._epoch

    @staticmethod
    def _result(decision: Decision) -> JoinResult:
        answer = decision.answer
        state = answer.get("state")
        return JoinResult(
            decision.verb,
            JoinReason(decision.reason) if decision.reason else None,
            window=answer.get("window"),
            remaining=answer.get("remaining"),
            state=None if state is None else CaseState(state),
        )
