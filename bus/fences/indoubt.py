"""Fence 3, indoubt: silence decides nothing.

Problem   a call times out at its client and goes on at its server: repeated, it has two effects; given up, it has one
          that nobody knows of.

States    of a pair (run, key, epoch), which is one call
              none ── prepare ──▶ prepared ── bind ──▶ COMMIT
               │                     └── recover ──▶ REJECT, to be undone       only once its lease has run out
               └────── recover ──▶ REJECT, never started                        likewise
          `reserve` gives it a slot and a lease for some time, and again when that ran out before `prepare`.
          `turn` takes a run to its next epoch: what is under way in an older one can only be recovered.

Invariants
  P1 an effect starts at most once a pair.           P2 what is decided stays decided, its result too.
  P3 a pair is committed by its own live lease, and rejected by a recover.
  P4 whoever is told that a call is over finds it over.
  P5 nothing is granted across epochs; they grow.    P6 a slot has one live reservation.
  P7 an undo is ordered for what may have started, and for nothing else.

If a party dies
  | who, when                         | what stands               | what follows                                     |
  |-----------------------------------|---------------------------|--------------------------------------------------|
  | caller, around `reserve`          | perhaps a reservation     | asked again, by whomever: the same lease; never  |
  |                                   |                           | asked again: it runs out, and the slot is free   |
  | caller, before `prepare`          | the same                  | `recover` after its time: never_started          |
  | caller, after `prepare`, whether  | prepared                  | in doubt while the lease lives, and its result   |
  | or not the effect started         |                           | counts; then `recover` orders the undo           |
  | caller, after `bind`              | the result                | resent: duplicate; other: already_decided        |
  | job, delivered twice              | prepared                  | the second `prepare` is in doubt: nothing starts |
  | who sends `recover`               | the tombstone             | asked again: the same answer, undo id and all    |
  | holder, in the middle of a turn   | calls of the older epoch  | each is recovered; their binds are stale_epoch   |
  | server                            | what it answered          | everything above, after its restart              |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.fences.fence import Fence, Result
from bus.types import Decision, LeaseId, RunId

__all__ = ["InDoubt", "InDoubtReason", "InDoubtResult"]


class InDoubtReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed."""
    STALE_EPOCH = "stale_epoch"
    """The conversation has turned since."""
    ALREADY_DECIDED = "already_decided"
    """The call has its result, or was given up."""
    RECOVER_FIRST = "recover_first"
    """The call was prepared and its time ran out: its effect may be out, so it is recovered, not repeated."""
    SLOT_BUSY = "slot_busy"
    """Another call has the slot."""
    LEASE_MISMATCH = "lease_mismatch"
    """Not the call's lease, or no longer; the holder is not harmed by who asked."""
    LEASE_EXPIRED = "lease_expired"
    """The reservation ran out: the slot may be another's by now."""
    ALREADY_PREPARED = "already_prepared"
    """Somebody was told to start: this may be the second delivery of his job, so nothing starts."""
    NOT_PREPARED = "not_prepared"
    """A result of what nobody was told to start."""
    LEASE_LIVE = "lease_live"
    """The call may still come to its end by itself."""
    NEVER_STARTED = "never_started"
    """Nobody was told to start, and now nobody will be: there is nothing to undo."""


@dataclass(frozen=True, slots=True)
class InDoubtResult(Result[InDoubtReason]):
    """The answer of an indoubt operation."""

    lease_id: LeaseId | None = None
    slot: str | None = None
    """The one that was granted; a second asking may have named another."""
    result: str | None = None
    undo_id: str | None = None


class InDoubt(Fence[InDoubtResult]):
    """The calls of one batch's conversations. A key is the idempotency key that the tool is given."""

    NAME: ClassVar[str] = "indoubt"

    async def turn(self, run: RunId, epoch: int) -> InDoubtResult:
        """Take the conversation to an epoch: a new turn, or the next after a preemption."""
        return await self._ask("turn", run=run, epoch=epoch)

    async def reserve(
        self, run: RunId, slot: str, key: str, epoch: int, ttl_ms: int, lease_id: LeaseId | None = None
    ) -> InDoubtResult:
        """Take a slot for one call, for `ttl_ms`. Answers lease_id and slot.

        The lease id is drawn here; whoever must ask again after a lost answer may draw it himself and give the same one
        again, but need not: while the reservation lives, everybody who asks is given it.
        """
        return await self._ask("reserve", run=run, slot=slot, key=key, epoch=epoch, ttl_ms=ttl_ms, lease_id=lease_id)

    async def prepare(self, run: RunId, lease_id: LeaseId, key: str, epoch: int) -> InDoubtResult:
        """Say that the effect is about to start: only on `commit` may it."""
        return await self._ask("prepare", run=run, lease_id=lease_id, key=key, epoch=epoch)

    async def bind(self, run: RunId, lease_id: LeaseId, key: str, epoch: int, result: str) -> InDoubtResult:
        """Decide the call by its result, while its lease lives. The slot is free then."""
        return await self._ask("bind", run=run, lease_id=lease_id, key=key, epoch=epoch, result=result)

    async def recover(self, run: RunId, key: str, epoch: int) -> InDoubtResult:
        """Find out what became of a call. `commit` answers the result, `compensate` the undo_id.

        Once its lease has run out the call is over with this: nothing of it can count later.
        """
        return await self._ask("recover", run=run, key=key, epoch=epoch)

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """See `Fence`. A `reserve` without a lease id draws one: the id belongs to the command."""
        if op == "reserve" and args.get("lease_id") is None:
            args = {**args, "lease_id": self._channel.runtime.token()}
        return await super().send(op, args)

    @staticmethod
    def _result(decision: Decision) -> InDoubtResult:
        answer = decision.answer
        return InDoubtResult(
            decision.verb,
            InDoubtReason(decision.reason) if decision.reason else None,
            lease_id=answer.get("lease_id"),
            slot=answer.get("slot"),
            result=answer.get("result"),
            undo_id=answer.get("undo_id"),
        )
