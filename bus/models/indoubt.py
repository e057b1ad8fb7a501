"""Fence 3, indoubt: silence decides nothing.

Problem   a call times out at its client and goes on at its server: repeated, it has two effects; given up, it has one
          that nobody knows of.
States    a pair (run, key, epoch) is one call
              none ── prepare ──▶ prepared ── bind ──▶ COMMIT
               │                     └── recover ──▶ REJECT, to be undone       only once its lease has run out
               └────── recover ──▶ REJECT, never started                        likewise
          reserve gives it a slot and a lease for some time, and again when that ran out before prepare.
Invariants
  P1 an effect starts at most once a pair.           P2 what is decided stays decided, its result too.
  P3 a pair is committed by its own live lease, and rejected by a recover.
  P4 whoever is told that a call is over finds it over.
  P5 nothing is granted across epochs; they grow.    P6 a slot has one live reservation.
  P7 an undo is ordered for what may have started, and for nothing else.
  L1 every call can be decided.                      L2 every slot comes free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from bus.models.model import Answer, Model, commit, compensate, duplicate, in_doubt, reject

__all__ = ["InDoubt", "Outcome", "Pair", "Ref"]


class Outcome(StrEnum):
    """What is known of a call; the last two are final."""

    NONE = "none"
    PREPARED = "prepared"
    COMMIT = "COMMIT"
    REJECT = "REJECT"


@dataclass(frozen=True, slots=True)
class Ref:
    """One call."""

    run: str
    key: str
    epoch: int

    def __str__(self) -> str:
        """`n3/k1@1`."""
        return f"{self.run}/{self.key}@{self.epoch}"


@dataclass(slots=True)
class Pair:
    """What stands of one call. One that was never reserved has no lease."""

    outcome: Outcome = Outcome.NONE
    lease_id: str | None = None
    """The latest."""
    slot: str = ""
    since_ms: int = 0
    ttl_ms: int = 0
    granted: dict[str, str] = field(default_factory=dict)
    """Every lease that it ever had → the slot that came with it."""
    result: str | None = None

    @property
    def decided(self) -> bool:
        return self.outcome in (Outcome.COMMIT, Outcome.REJECT)


class InDoubt(Model):
    """The calls of one batch's conversations, and the slots that they share."""

    FENCE = "indoubt"
    CONFIG = ""
    OPS: ClassVar = {
        "turn": "run str, epoch int",
        "reserve": "run str, slot str, key str, epoch int, ttl_ms int1, lease_id drawn",
        "prepare": "run str, lease_id str, key str, epoch int",
        "bind": "run str, lease_id str, key str, epoch int, result str",
        "recover": "run str, key str, epoch int",
    }

    def __init__(self, *, draw: Callable[[], str] | None = None) -> None:
        """An empty batch."""
        super().__init__(draw=draw)
        self.pairs: dict[Ref, Pair] = {}
        self.epochs: dict[str, int] = {}
        """The highest that a granted turn or reserve named, by run."""
        self.compensations: set[Ref] = set()
        """The calls whose undo was ordered."""

    def turn(self, *, run: str, epoch: int) -> Answer:
        if epoch < self.epochs.get(run, 0):
            return reject("stale_epoch")
        if epoch == self.epochs.get(run, 0):
            return duplicate()

        self.epochs[run] = epoch
        return commit()

    def reserve(self, *, run: str, slot: str, key: str, epoch: int, ttl_ms: int, lease_id: str) -> Answer:
        ref = Ref(run, key, epoch)
        at = self._at(ref)
        if lease_id in at.granted:  # the id belongs to the command: this one was sent before
            return duplicate(lease_id=lease_id, slot=at.granted[lease_id])
        if at.decided:
            return reject("already_decided")
        if epoch < self.epochs.get(run, 0):
            return reject("stale_epoch")
        if self._answered_for(at):
            return duplicate(lease_id=at.lease_id, slot=at.slot)
        if self._may_be_out(at):
            return in_doubt("recover_first")
        if any(other.slot == slot and self.live(other) for others, other in self.pairs.items() if others != ref):
            return reject("slot_busy")

        self.epochs[run] = epoch
        at.outcome, at.lease_id, at.slot, at.since_ms, at.ttl_ms = Outcome.NONE, lease_id, slot, self.now_ms, ttl_ms
        at.granted[lease_id] = slot
        self.pairs[ref] = at
        return commit(lease_id=lease_id, slot=slot)

    def prepare(self, *, run: str, lease_id: str, key: str, epoch: int) -> Answer:
        at = self._at(Ref(run, key, epoch))
        if at.decided:
            return reject("already_decided")
        if not_holder := self._not_holder(at, run, lease_id, epoch):
            return not_holder
        if self._started(at):
            return in_doubt("already_prepared")

        at.outcome = Outcome.PREPARED
        return commit()

    def bind(self, *, run: str, lease_id: str, key: str, epoch: int, result: str) -> Answer:
        at = self._at(Ref(run, key, epoch))
        if at.outcome is Outcome.COMMIT and at.result == result:
            return duplicate()
        if at.decided:
            return reject("already_decided")
        if not_holder := self._not_holder(at, run, lease_id, epoch):
            return not_holder
        if at.outcome is not Outcome.PREPARED:
            return reject("not_prepared")

        at.outcome, at.result = Outcome.COMMIT, result
        return commit()

    def recover(self, *, run: str, key: str, epoch: int) -> Answer:
        ref = Ref(run, key, epoch)
        at = self._at(ref)
        if at.outcome is Outcome.COMMIT:
            return commit(result=at.result)
        if self.live(at):
            return in_doubt("lease_live")
        if at.outcome is Outcome.PREPARED or ref in self.compensations:
            self._tombstone(ref, at)
            self.compensations.add(ref)
            return compensate(undo_id=f"{key}~undo")
        self._tombstone(ref, at)
        return reject("never_started")

    def live(self, at: Pair) -> bool:
        """Whether its reservation holds: undecided, and its time is not over."""
        return not at.decided and self.now_ms - at.since_ms < at.ttl_ms

    def _not_holder(self, at: Pair, run: str, lease_id: str, epoch: int) -> Answer | None:
        """The three checks that prepare and bind share."""
        if at.lease_id != lease_id:
            return reject("lease_mismatch")
        if epoch < self.epochs.get(run, 0):
            return reject("stale_epoch")
        if not self.live(at):
            return reject("lease_expired")
        return None

    def _answered_for(self, at: Pair) -> bool:
        """Whether who asks again is given what was granted before."""
        return self.live(at)

    def _may_be_out(self, at: Pair) -> bool:
        """Whether an effect may have started that nobody has recovered."""
        return at.outcome is Outcome.PREPARED

    def _started(self, at: Pair) -> bool:
        """Whether somebody was told that he may start."""
        return at.outcome is Outcome.PREPARED

    def _tombstone(self, ref: Ref, at: Pair) -> None:
        """From now on nothing of this call can count."""
        at.outcome = Outcome.REJECT
        self.pairs[ref] = at

    def _at(self, ref: Ref) -> Pair:
        """The pair; one that nobody named is empty, and is kept only when it is reserved or rejected."""
        return self.pairs.get(ref) or Pair()

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "outcomes": {str(ref): at.outcome.value for ref, at in self.pairs.items()},
            "slots": {at.slot: str(ref) for ref, at in self.pairs.items() if self.live(at)},
            "epochs": dict(self.epochs),
            "compensations": sorted(map(str, self.compensations), key=str.encode),
        }
