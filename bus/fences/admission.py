"""Fence 11, admission: a bounded desk with generations.

Problem   a request times out and is sent again: both bodies arrive and both are applied, or the place of the one that
          never came is lost and the desk starves.

States    of a lease, which is a place at the desk taken for one step
              acquire ──▶ live ── expire ──▶ expired ── release, reclaim ──▶ gone
                           └──────────── release ──────────────────────────▶ gone
          of a step: open ── apply by its live lease ──▶ committed, for good

Invariants
  P1 0 ≤ in_flight ≤ bound, and in_flight counts the leases that are not gone.
  P2 a step is committed at most once.              P3 by a lease that was live, under its own gen.
  P4 a body after its timeout is stale; before it, nobody sends a second time.
  L1 no place leaks: an expired lease is released by its body or reclaimed by a sweeper.

If a party dies
  | who, when                | what stands             | what follows                                         |
  |--------------------------|-------------------------|------------------------------------------------------|
  | caller, `acquire` sent   | perhaps a live lease    | resent with the same lease id: duplicate; never      |
  |                          |                         | resent: `expire` after its time                      |
  | caller, request sent     | a live lease            | `expire` cancels it; the retry acquires anew         |
  | caller, after `expire`   | an expired lease, its   | the body releases it; or `reclaim`, once the cancel  |
  |                          | place still taken       | is confirmed or its time has passed                  |
  | caller, after `apply`    | the step, committed     | resent: duplicate; another body: step_committed      |
  | caller, before `release` | a place, still taken    | `expire`, then `reclaim`                             |
  | caller, after `release`  | the place, free         | resent: double_release, and nothing is freed again   |
  | server                   | what it answered        | everything above, after its restart                  |

A lease's life is kept in the row of the run that its step belongs to; so each operation names the run and the step
beside the lease.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.fences.fence import Channel, Fence, Result
from bus.keys import RUNS_DESK
from bus.types import Decision, LeaseId, RunId

__all__ = ["Admission", "AdmissionReason", "AdmissionResult"]


class AdmissionReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed."""
    LEASE_REUSED = "lease_reused"
    """This id was drawn for another step."""
    STEP_COMMITTED = "step_committed"
    """The step has its one body."""
    STEP_IN_FLIGHT = "step_in_flight"
    """The step has a live lease; a second request needs an `expire` first."""
    BOUND_FULL = "bound_full"
    """No place is free: nothing is sent."""
    NOT_LIVE = "not_live"
    """Expired already, given back, or unknown."""
    STALE_GEN = "stale_gen"
    """The lease was given up, or the body is another lease's."""
    UNKNOWN_LEASE = "unknown_lease"
    """No such lease was ever granted."""
    DOUBLE_RELEASE = "double_release"
    """The place was given back before."""
    STILL_LIVE = "still_live"
    """Only an expired lease is reclaimed."""
    CANCEL_PENDING = "cancel_pending"
    """The endpoint may still be busy with it: ask again later."""


@dataclass(frozen=True, slots=True)
class AdmissionResult(Result[AdmissionReason]):
    """The answer of an admission operation."""

    lease: LeaseId | None = None
    gen: int | None = None
    """`acquire`: the lease's generation. `expire`: the desk's new one."""


class Admission(Fence[AdmissionResult]):
    """One desk of a batch."""

    NAME: ClassVar[str] = "admission"

    def __init__(self, channel: Channel, desk: str = RUNS_DESK) -> None:
        """`desk` is its name; its bound was fixed when it was set up."""
        super().__init__(channel)
        self._desk = desk

    async def acquire(self, run: RunId, step: str, lease: LeaseId | None = None) -> AdmissionResult:
        """Take a place for a step. Answers lease and gen.

        The lease id is drawn here; whoever must ask again after a lost answer draws it himself and gives the
        same one again.
        """
        return await self._ask("acquire", run=run, step=step, lease=lease)

    async def expire(self, run: RunId, step: str, lease: LeaseId) -> AdmissionResult:
        """Give a request up: its body is stale from now on; its place stays taken. Answers the desk's gen."""
        return await self._ask("expire", run=run, step=step, lease=lease)

    async def apply(self, run: RunId, step: str, lease: LeaseId, gen: int, digest: str) -> AdmissionResult:
        """Commit the step with the body that came, named by its digest."""
        return await self._ask("apply", run=run, step=step, lease=lease, gen=gen, digest=digest)

    async def release(self, run: RunId, step: str, lease: LeaseId) -> AdmissionResult:
        """Give the place back, once."""
        return await self._ask("release", run=run, step=step, lease=lease)

    async def reclaim(self, run: RunId, step: str, lease: LeaseId, *, cancelled: bool) -> AdmissionResult:
        """Give back the place of an expired lease that nobody released.

        `cancelled`: the endpoint confirmed that it has stopped. Without that, `in_doubt` until the desk's time
        for it has passed.
        """
        return await self._ask("reclaim", run=run, step=step, lease=lease, cancelled=cancelled)

    async def send(self, op: str, args: Mapping[str, object]) -> Decision:
        """See `Fence`. An `acquire` without a lease id draws one: the id belongs to the command."""
        if op == "acquire" and args.get("lease") is None:
            args = {**args, "lease": self._channel.runtime.token()}
        return await self._channel.decide(f"admission.{op}", args, desk=self._desk)

    @staticmethod
    def _result(decision: Decision) -> AdmissionResult:
        answer = decision.answer
        return AdmissionResult(
            decision.verb,
            AdmissionReason(decision.reason) if decision.reason else None,
            lease=answer.get("lease"),
            gen=answer.get("gen"),
        )
