"""Fence 10, ledger: spend is counted per chunk.

Problem   a stream breaks after half of its tokens were produced: spend that is counted at a step's end forgets them,
          the retry spends them again, and calls that each fit into the budget pass it together.

States    of an attempt, which is one request for one step
              admit ──▶ open ── done, every chunk there and durable ──▶ committed, for good
                │         ├── done with spend that is not durable, cut ──▶ cut
                │         └── done behind another's commit, abandon ──▶ abandoned
                └─ refused: an id that was new is recorded as abandoned
          an attempt that is not open may be reconciled with the gateway's figure, once; that settles it.
          A chunk is paid, then durable; or refused, when it comes to an attempt that is closed.

Invariants
  S1 spent = durable + orphan: every token that came is in it, once.
  S2 a step is committed by one attempt.                  S3 with every chunk there, and all that was billed durable.
  S4 what is granted fits into the budget beside all that open attempts may still spend.
  S5 a committed step is admitted no more.                S6 an attempt id is used once; what is closed stays closed.
  S7 the first tokens of a chunk stand; refused content never turns durable; a settled attempt never changes.
  L1 no reservation leaks: with every attempt closed nothing is reserved.
  L2 every step can be committed while there is budget.

If a party dies
  | who, when                   | what stands                  | what follows                                      |
  |-----------------------------|------------------------------|---------------------------------------------------|
  | caller, `admit` sent        | perhaps an open attempt      | resent: attempt_reused; `abandon` it, admit anew  |
  | caller, in mid-stream       | an open attempt, its estimate| `cut` frees what it had reserved; chunks under    |
  |                             | reserved, its chunks billed  | way are billed as orphan: attempt_closed          |
  | caller, `chunk` sent        | perhaps the chunk, billed    | resent: duplicate, and not billed again           |
  | caller, before it is durable| chunks that are only paid    | sent again as durable: duplicate, counted; never: |
  |                             |                              | `done` cuts the attempt                           |
  | caller, `done` sent         | perhaps the step, committed  | resent: duplicate; a retry is already_committed   |
  | caller, after `cut`         | tokens that never arrived    | `reconcile` makes the gateway's figure the spend  |
  | who sends `reconcile`       | settled, or not              | resent: duplicate                                 |
  | server                      | what it answered             | everything above, after its restart               |

The attempts of a step are kept in the row of the run that it belongs to; so each operation names the run too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.fences.fence import Fence, Result
from bus.types import Decision, RunId

__all__ = ["AttemptState", "Ledger", "LedgerReason", "LedgerResult", "estimate_from"]


def estimate_from(billed: Sequence[int], otherwise: int, quantile: float = 0.95) -> int:
    """What to reserve for an attempt: a high quantile (nearest rank) of what the step type's last ones were billed.

    High, because what is reserved too much comes back when the attempt ends, and what is reserved too little lets
    others in who do not fit. `otherwise` is for a step type of which nothing is known. Raises ValueError for a
    `quantile` that is not above 0 and at most 1.
    """
    if not 0 < quantile <= 1:
        raise ValueError(f"a quantile is above 0 and at most 1, not {quantile}")
    if not billed:
        return otherwise
    return sorted(billed)[math.ceil(quantile * len(billed)) - 1]


class LedgerReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed."""
    ALREADY_COMMITTED = "already_committed"
    """The step has its one committed attempt; this one is recorded as abandoned."""
    ATTEMPT_REUSED = "attempt_reused"
    """Attempt ids are never used again."""
    OVER_BUDGET = "over_budget"
    """It does not fit beside what is spent and reserved; the attempt is recorded as abandoned."""
    UNKNOWN_ATTEMPT = "unknown_attempt"
    """No such attempt was ever admitted or refused."""
    ATTEMPT_CLOSED = "attempt_closed"
    """It has ended. A chunk is billed all the same, and its content is never used."""
    MISSING_CHUNKS = "missing_chunks"
    """The end overtook a chunk: send what is missing, then ask again."""
    NOT_DURABLE = "not_durable"
    """Something that was billed is not durable; the attempt is cut."""
    ATTEMPT_OPEN = "attempt_open"
    """The gateway's figure is not final while the attempt is open."""
    ALREADY_RECONCILED = "already_reconciled"
    """Another figure stands."""
    BELOW_DURABLE = "below_durable"
    """The figure is less than what is safely stored."""


class AttemptState(StrEnum):
    """Of an attempt; only an open one moves."""

    OPEN = "open"
    COMMITTED = "committed"
    CUT = "cut"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class LedgerResult(Result[LedgerReason]):
    """The answer of a ledger operation. Figures are the attempt's, in tokens."""

    billed: int | None = None
    durable: int | None = None
    watermark: int | None = None
    """All chunks up to this one are durable."""
    state: AttemptState | None = None


class Ledger(Fence[LedgerResult]):
    """The spend of one batch."""

    NAME: ClassVar[str] = "ledger"

    async def admit(self, run: RunId, step: str, attempt: int, estimate: int) -> LedgerResult:
        """Open an attempt, and reserve `estimate` tokens for it. Attempts are numbered by the caller, from 1."""
        return await self._ask("admit", run=run, step=step, attempt=attempt, estimate=estimate)

    async def chunk(self, run: RunId, step: str, attempt: int, seq: int, tokens: int, *, durable: bool) -> LedgerResult:
        """Count one chunk, the `seq`-th of the stream, from 1. Answers billed, durable, watermark.

        Sent again with `durable`, once its content is safely stored; its first `tokens` stand.
        """
        return await self._ask("chunk", run=run, step=step, attempt=attempt, seq=seq, tokens=tokens, durable=durable)

    async def done(self, run: RunId, step: str, attempt: int, last_seq: int) -> LedgerResult:
        """Commit the step with this attempt, whose last chunk was `last_seq`. Answers state."""
        return await self._ask("done", run=run, step=step, attempt=attempt, last_seq=last_seq)

    async def cut(self, run: RunId, step: str, attempt: int) -> LedgerResult:
        """Close an attempt whose stream broke."""
        return await self._ask("cut", run=run, step=step, attempt=attempt)

    async def abandon(self, run: RunId, step: str, attempt: int) -> LedgerResult:
        """Close an attempt that is not wanted any more."""
        return await self._ask("abandon", run=run, step=step, attempt=attempt)

    async def reconcile(self, run: RunId, step: str, attempt: int, gateway_billed: int) -> LedgerResult:
        """Set what a closed attempt cost to what the gateway billed, for good."""
        return await self._ask("reconcile", run=run, step=step, attempt=attempt, gateway_billed=gateway_billed)

    @staticmethod
    def _result(decision: Decision) -> LedgerResult:
        answer = decision.answer
        state = answer.get("state")
        return LedgerResult(
            decision.verb,
            LedgerReason(decision.reason) if decision.reason else None,
            billed=answer.get("billed"),
            durable=answer.get("durable"),
            watermark=answer.get("watermark"),
            state=AttemptState(state) if state else None,
        )
