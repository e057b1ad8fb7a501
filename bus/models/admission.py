"""Fence 11, admission: a bounded desk with generations.

Problem   a request times out and is sent again: then both bodies arrive and both are applied, or the slot of
          the one that never came is lost for ever and the desk starves.
States    a lease: acquire ──▶ live ── expire ──▶ expired ── release, reclaim ──▶ gone
                                └────────── release ─────────────────────────▶ gone
          a step: open, then committed by one body. A slot is taken from acquire until the lease is gone.
Invariants
  P1 0 ≤ in_flight ≤ bound, and in_flight is the number of leases that are not gone.
  P2 a step is committed at most once.            P3 by a lease that was live, under its own gen.
  P4 a body that comes after its timeout is stale; until the timeout nobody sends a second time.
  L1 no slot leaks: once all leases are expired and their time has passed, the desk can be emptied.
  L2 every step can then be committed by a retry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from bus.models.model import Answer, Model, commit, duplicate, in_doubt, reject

__all__ = ["Admission", "Committed", "Lease"]


@dataclass(slots=True)
class Lease:
    """One slot of the desk, and what it was taken for."""

    step: str
    gen: int
    expired_ms: int | None = None
    """When it was expired; None while it is live, or when it was released alive."""
    gone: bool = False
    """Released or reclaimed: its slot was given back."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The one body that counts for a step."""

    lease: str
    digest: str


class Admission(Model):
    """One desk."""

    FENCE = "admission"
    CONFIG = "bound int1, reclaim_ms int1"
    OPS: ClassVar = {
        "acquire": "step str, lease drawn",
        "expire": "lease str",
        "apply": "lease str, gen int, digest str",
        "release": "lease str",
        "reclaim": "lease str, cancelled bool",
    }

    def __init__(self, *, bound: int, reclaim_ms: int, draw: Callable[[], str] | None = None) -> None:
        """`reclaim_ms` after its `expire`, a request whose cancelling nobody confirmed is given up."""
        super().__init__(draw=draw)
        self.bound = bound
        self.reclaim_ms = reclaim_ms
        self.generation = 0
        self.in_flight = 0
        self.leases: dict[str, Lease] = {}
        self.live: dict[str, str] = {}
        """Step → its live lease, at most one."""
        self.committed: dict[str, Committed] = {}

    def acquire(self, *, step: str, lease: str) -> Answer:
        if known := self.leases.get(lease):  # the id belongs to the command: this one was sent before
            return duplicate(lease=lease, gen=known.gen) if known.step == step else reject("lease_reused")
        if step in self.committed:
            return reject("step_committed")
        if step in self.live:
            return reject("step_in_flight")
        if self._full(step):
            return reject("bound_full")

        self.generation += 1
        self.in_flight += 1
        self.leases[lease] = Lease(step, self.generation)
        self.live[step] = lease
        return commit(lease=lease, gen=self.generation)

    def expire(self, *, lease: str) -> Answer:
        if not self._is_live(lease):
            return reject("not_live")

        self.generation += 1
        self.leases[lease].expired_ms = self.now_ms
        del self.live[self.leases[lease].step]
        return commit(gen=self.generation)

    def apply(self, *, lease: str, gen: int, digest: str) -> Answer:
        known = self.leases.get(lease)
        if known and self.committed.get(known.step) == Committed(lease, digest):
            return duplicate()
        if known is None or self._stale(lease, gen):
            return reject("stale_gen")
        if known.step in self.committed:
            return reject("step_committed")

        self.committed[known.step] = Committed(lease, digest)
        return commit()

    def release(self, *, lease: str) -> Answer:
        known = self.leases.get(lease)
        if known is None:
            return reject("unknown_lease")
        if known.gone:
            return reject("double_release")

        if self._is_live(lease):
            del self.live[known.step]
        known.gone = True
        self.in_flight -= 1
        return commit()

    def reclaim(self, *, lease: str, cancelled: bool) -> Answer:
        known = self.leases.get(lease)
        if known is None:
            return reject("unknown_lease")
        if known.gone:
            return reject("double_release")
        if known.expired_ms is None:
            return reject("still_live")
        if self._may_still_answer(known.expired_ms, cancelled):
            return in_doubt("cancel_pending")

        known.gone = True
        self.in_flight -= 1
        return commit()

    def _is_live(self, lease: str) -> bool:
        known = self.leases.get(lease)
        return known is not None and self.live.get(known.step) == lease

    def _full(self, _step: str) -> bool:
        """A retry waits for a slot like everybody: the request that it repeats may still be running."""
        return self.in_flight >= self.bound

    def _stale(self, lease: str, gen: int) -> bool:
        """The body of a request that was given up, or of another one."""
        return not self._is_live(lease) or self.leases[lease].gen != gen

    def _may_still_answer(self, expired_ms: int, cancelled: bool) -> bool:
        """Whether the backend may still be busy with it, so that its slot is not free yet."""
        return not cancelled and self.now_ms - expired_ms < self.reclaim_ms

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "in_flight": self.in_flight,
            "live": sorted(self.live),
            "committed": {step: body.digest for step, body in self.committed.items()},
        }
