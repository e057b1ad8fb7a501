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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from bus.models.model import MAX_INT, Answer, Model, commit, duplicate, in_doubt, reject

__all__ = ["Attempt", "AttemptId", "Chunk", "Ledger", "State"]


class State(StrEnum):
    """Of an attempt; only an open one moves."""

    OPEN = "open"
    COMMITTED = "committed"
    CUT = "cut"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class AttemptId:
    """One request for a step. The number is the caller's, and is never used again."""

    step: str
    number: int

    def __str__(self) -> str:
        """As the state names it."""
        return f"{self.step}#{self.number}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a stream, as it came first."""

    tokens: int
    durable: bool = False
    refused: bool = False
    """It came to a closed attempt: it is paid for, and its content is never used."""


@dataclass(slots=True)
class Attempt:
    """What one request was allowed, and what it cost."""

    state: State
    estimate: int
    billed: int = 0
    chunks: dict[int, Chunk] = field(default_factory=dict)
    """By their number in the stream, from 1."""
    last_seq: int | None = None
    """Of the `done` that committed it."""
    settled: bool = False
    """The gateway's figure stands: nothing is billed and nothing turns durable any more."""

    @property
    def durable(self) -> int:
        return sum(chunk.tokens for chunk in self.chunks.values() if chunk.durable)

    @property
    def watermark(self) -> int:
        """All chunks up to this one are durable."""
        last = 0
        while last + 1 in self.chunks and self.chunks[last + 1].durable:
            last += 1
        return last

    @property
    def reserved(self) -> int:
        """What it may still spend."""
        return max(self.estimate - self.billed, 0) if self.state is State.OPEN else 0

    def arrived(self, last_seq: int) -> bool:
        """Whether every chunk up to this one came."""
        return last_seq <= len(self.chunks) and all(seq in self.chunks for seq in range(1, last_seq + 1))


class Ledger(Model):
    """The spend of one batch."""

    FENCE = "ledger"
    CONFIG = "budget int"
    OPS: ClassVar = {
        "admit": "step str, attempt int1, estimate int",
        "chunk": "step str, attempt int1, seq int1, tokens int, durable bool",
        "done": "step str, attempt int1, last_seq int1",
        "cut": "step str, attempt int1",
        "abandon": "step str, attempt int1",
        "reconcile": "step str, attempt int1, gateway_billed int",
    }

    def __init__(self, *, budget: int, draw: Callable[[], str] | None = None) -> None:
        """`budget`: tokens that the batch may spend."""
        super().__init__(draw=draw)
        self.budget = budget
        self.attempts: dict[AttemptId, Attempt] = {}

    @property
    def spent(self) -> int:
        """All that was billed."""
        return sum(attempt.billed for attempt in self.attempts.values())

    @property
    def durable(self) -> int:
        """What of it is safely stored; the rest is orphan."""
        return sum(attempt.durable for attempt in self.attempts.values())

    @property
    def reserved(self) -> int:
        """What open attempts may still spend."""
        return sum(attempt.reserved for attempt in self.attempts.values())

    def admit(self, *, step: str, attempt: int, estimate: int) -> Answer:
        name = AttemptId(step, attempt)
        if self._known_as_committed(step):
            return self._refuse_new(name, estimate, "already_committed")
        if name in self.attempts:
            return reject("attempt_reused")
        if self.spent + self._set_aside() + estimate > self.budget:
            return self._refuse_new(name, estimate, "over_budget")

        self.attempts[name] = Attempt(State.OPEN, estimate)
        return commit()

    def chunk(self, *, step: str, attempt: int, seq: int, tokens: int, durable: bool) -> Answer:
        at = self.attempts.get(AttemptId(step, attempt))
        if at is None:
            return reject("unknown_attempt")
        if seen := at.chunks.get(seq):
            if durable and not seen.refused and not at.settled:
                at.chunks[seq] = Chunk(seen.tokens, durable=True)
            return duplicate(**self._figures(at))
        if not at.settled and not self._is_countable(tokens):
            return reject("schema")
        if at.state is not State.OPEN:
            at.chunks[seq] = Chunk(tokens, refused=True)
            if not at.settled:
                at.billed += tokens
            return reject("attempt_closed", **self._figures(at))

        at.chunks[seq] = Chunk(tokens, durable)
        self._bill(at, tokens)
        return commit(**self._figures(at))

    def done(self, *, step: str, attempt: int, last_seq: int) -> Answer:
        at = self.attempts.get(AttemptId(step, attempt))
        if at is None:
            return reject("unknown_attempt")
        if at.state is State.COMMITTED and at.last_seq == last_seq:
            return duplicate(state=at.state.value)
        if at.state is not State.OPEN:
            return reject("attempt_closed", state=at.state.value)
        if self._is_committed(step):
            at.state = State.ABANDONED
            return reject("already_committed", state=at.state.value)
        if not at.arrived(last_seq):
            return in_doubt("missing_chunks", state=at.state.value)
        if at.billed != at.durable:
            at.state = State.CUT
            return reject("not_durable", state=at.state.value)

        at.state = State.COMMITTED
        at.last_seq = last_seq
        return commit(state=at.state.value)

    def cut(self, *, step: str, attempt: int) -> Answer:
        return self._close(AttemptId(step, attempt), State.CUT)

    def abandon(self, *, step: str, attempt: int) -> Answer:
        return self._close(AttemptId(step, attempt), State.ABANDONED)

    def _close(self, name: AttemptId, state: State) -> Answer:
        at = self.attempts.get(name)
        if at is None:
            return reject("unknown_attempt")
        if at.state is state:
            return duplicate()
        if at.state is not State.OPEN:
            return reject("attempt_closed")

        at.state = state
        return commit()

    def reconcile(self, *, step: str, attempt: int, gateway_billed: int) -> Answer:
        at = self.attempts.get(AttemptId(step, attempt))
        if at is None:
            return reject("unknown_attempt")
        if at.state is State.OPEN:
            return in_doubt("attempt_open")
        if at.settled:
            return duplicate() if at.billed == gateway_billed else reject("already_reconciled")
        if gateway_billed < at.durable:
            return reject("below_durable")
        if not self._is_countable(gateway_billed - at.billed):
            return reject("schema")

        at.billed = gateway_billed
        at.settled = True
        return commit()

    def _refuse_new(self, name: AttemptId, estimate: int, reason: str) -> Answer:
        """An attempt that is refused when it is new is used up, not left waiting."""
        self.attempts.setdefault(name, Attempt(State.ABANDONED, estimate))
        return reject(reason)

    def _is_committed(self, step: str) -> bool:
        return any(name.step == step and at.state is State.COMMITTED for name, at in self.attempts.items())

    def _known_as_committed(self, step: str) -> bool:
        """What `admit` knows of a step's commit."""
        return self._is_committed(step)

    def _set_aside(self) -> int:
        """What of the budget is spoken for, beside what is spent."""
        return self.reserved

    def _bill(self, at: Attempt, tokens: int) -> None:
        """The tokens were produced, whatever becomes of the step."""
        at.billed += tokens

    def _is_countable(self, more: int) -> bool:
        """Above it a sum is not exact for everybody: what would take the batch's there is no count of tokens."""
        return self.spent + more <= MAX_INT

    def _figures(self, at: Attempt) -> dict[str, object]:
        return {"billed": at.billed, "durable": at.durable, "watermark": at.watermark}

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "spent": self.spent,
            "durable": self.durable,
            "orphan": self.spent - self.durable,
            "reserved": self.reserved,
            "attempts": {
                str(name): {"state": at.state.value, **self._figures(at)} for name, at in self.attempts.items()
            },
        }
