"""Fence 4, completion: bind both planes or nothing.

Problem   a worker is preempted while its prompt is under way: the answer comes back to a run that has another holder,
          or is delivered twice, or answers a request that was given up, and is taken for the step's own.

States    of a run
              free ── lease ──▶ held (lease_id, gen) ── lease: the next holder, gen+1, one compute retry less
               ▲                  │
               └───── fence ──────┘            exhausted, once a model retry is wanted that is not there
          of a shard, which is one (run, step), and of its latest request
              none ── open ──▶ asked ── bind, payload whole ──▶ bound, for good
                                ▲ │ └── bind, payload corrupt ──▶ replay: used up, one model retry less
                                └─┴──── open, from any of them but bound: the older request is superseded

Invariants
  P1 a bound completion's lease and gen were live when it was bound.
  P2 its prompt left under that very lease, for this very shard.   P3 no later request had superseded it.
  P4 a shard is bound once, and stays as it was bound.
  P5 a retry costs one: each lease after a run's first, each request that was answered corrupt; nothing else does.
  P6 after the close nothing is bound.                             P7 an exhausted run is granted nothing any more.
  P8 only `lease` and `fence` move a lease, and gens grow: a model retry extends none that is dead.
  L1 every shard comes to an end: bound, or its run has no retry left, or the batch is closed.

If a party dies
  | who, when                             | what stands               | what follows                             |
  |---------------------------------------|---------------------------|------------------------------------------|
  | holder, `lease` sent                  | perhaps a lease without   | resent with the same id: duplicate, and  |
  |                                       | a holder                  | nothing is charged; the next fences it   |
  | holder, `open` sent, no prompt yet    | perhaps an open request   | resent: duplicate; the successor opens   |
  |                                       |                           | its own, which supersedes it             |
  | holder, the prompt is under way       | an open request           | its answer is stale_lease, and under the |
  |                                       |                           | successor's lease unknown_request        |
  | holder, `bind` sent                   | perhaps the shard, bound  | resent: duplicate; after a preemption    |
  |                                       |                           | stale_lease, and `open` tells the        |
  |                                       |                           | successor already_bound                  |
  | holder, `bind` of a corrupt payload   | perhaps one retry less    | resent: the same replay, uncharged       |
  | holder, silent but alive              | the successor's lease     | whatever it sends is stale_lease         |
  | who sends `fence`                     | fenced, or not            | resent: stale_lease; the next holder has |
  |                                       |                           | another gen and is not touched           |
  | who sends `close`                     | closed, or not            | resent: duplicate                        |
  | server                                | what it answered          | everything above, after its restart      |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.fences.fence import Fence, Result
from bus.types import Decision, Digest, Gen, LeaseId, RunId

__all__ = ["Completion", "CompletionReason", "CompletionResult"]


class CompletionReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed."""
    RETRIES_EXHAUSTED = "retries_exhausted"
    """The run has no retry left of the kind that this needs, or is exhausted for good."""
    LEASE_REUSED = "lease_reused"
    """This id was granted before: a late message cannot take the run back."""
    STALE_LEASE = "stale_lease"
    """The lease is not the live one: fenced, succeeded, or never granted."""
    REQUEST_REUSED = "request_reused"
    """The request id was opened before, somewhere in the batch."""
    ALREADY_BOUND = "already_bound"
    """The shard has its one completion, and this is another."""
    AFTER_CLOSE = "after_close"
    """The batch has passed its watermark."""
    UNKNOWN_REQUEST = "unknown_request"
    """This lease never opened such a request for this shard: the prompt is somebody else's."""
    SUPERSEDED = "superseded"
    """A later request of the shard was opened meanwhile."""
    PROMPT_HASH = "prompt_hash"
    """Another prompt than the one that was opened."""
    PAYLOAD_CORRUPT = "payload_corrupt"
    """The request is used up: open another one."""


@dataclass(frozen=True, slots=True)
class CompletionResult(Result[CompletionReason]):
    """The answer of a completion operation."""

    gen: Gen | None = None
    model_left: int | None = None
    """Model retries that the run has left."""


class Completion(Fence[CompletionResult]):
    """The model calls of one batch's runs."""

    NAME: ClassVar[str] = "completion"

    async def lease(self, run: RunId, lease_id: LeaseId) -> CompletionResult:
        """Take the run under a new generation and fence the older. Answers gen.

        Each but the run's first costs one compute retry.
        """
        return await self._ask("lease", run=run, lease_id=lease_id)

    async def fence(self, run: RunId, gen: Gen) -> CompletionResult:
        """Take the run away from the generation that is named, and from no other."""
        return await self._ask("fence", run=run, gen=gen)

    async def open(
        self, run: RunId, step: str, lease_id: LeaseId, gen: Gen, request_id: str, prompt_hash: Digest
    ) -> CompletionResult:
        """Announce a request before its prompt leaves; it supersedes the step's earlier one.

        `request_id` is new in the batch; `prompt_hash` is the SHA-256 of the exact bytes that will be sent.
        """
        return await self._ask(
            "open",
            run=run,
            step=step,
            lease_id=lease_id,
            gen=gen,
            request_id=request_id,
            prompt_hash=prompt_hash,
        )

    async def bind(
        self,
        run: RunId,
        step: str,
        lease_id: LeaseId,
        gen: Gen,
        request_id: str,
        prompt_hash: Digest,
        *,
        payload_ok: bool,
        digest: Digest,
    ) -> CompletionResult:
        """Make the answer that came the step's completion, named by its digest. Answers model_left.

        `payload_ok` false: what came cannot be used. That costs one model retry, and the verb is `replay`.
        """
        return await self._ask(
            "bind",
            run=run,
            step=step,
            lease_id=lease_id,
            gen=gen,
            request_id=request_id,
            prompt_hash=prompt_hash,
            payload_ok=payload_ok,
            digest=digest,
        )

    async def close(self) -> CompletionResult:
        """Let nothing be bound in this batch any more."""
        return await self._ask("close")

    @staticmethod
    def _result(decision: Decision) -> CompletionResult:
        answer = decision.answer
        return CompletionResult(
            decision.verb,
            CompletionReason(decision.reason) if decision.reason else None,
            gen=answer.get("gen"),
            model_left=answer.get("model_left"),
        )
