"""Fence 6, judge: the critic that was bound signs the score.

Problem   a pool swaps the judge, or routes to another candidate, between the transcript and the score: the row would
          then say something about a pair that nobody chose.

States    of a run
              unbound ── mint ──▶ bound at epoch e ── commit ──▶ scored, for good
                                   │  ▲       │
                                   │  └───────┘ rebind: epoch e+1, and e is a tombstone
                                   └─ a mismatch goes by the policy:  reject   refused
                                                                      replay   asked again under a rebind, budgeted
                                                                      review   queued for a person
Invariants
  J1 each row equals the token that its run is bound to.    J2 a row never changes.
  J3 a tombstoned epoch never signs.                        J4 replays never pass the batch's budget.
  J5 only runs without a score wait for review.

If a party dies
  | who, when                         | what stands             | what follows                                |
  |-----------------------------------|-------------------------|---------------------------------------------|
  | planner, around `mint`            | the token, or none      | resent: already_bound, naming what is bound |
  | scorer, before `commit`           | the token               | the next scorer is judged by the same token |
  | scorer, after `commit`, no answer | the row                 | resent: duplicate; other: already_scored    |
  | operator, after `rebind`          | the next epoch's token  | resent: stale_epoch, for it names the old   |
  |                                   |                         | one; so is a score under the old token      |
  | scorer, after a `replay`          | one count for its epoch | asked again: the same answer, counted once  |
  | server                            | what it answered        | everything above, after its restart         |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from bus.fences.fence import Fence, Result
from bus.types import Decision, RunId

__all__ = ["Judge", "JudgeReason", "JudgeResult"]


class JudgeReason(StrEnum):
    """Why an operation was not applied."""

    SCHEMA = "schema"
    """An argument is missing or malformed."""
    ALREADY_BOUND = "already_bound"
    """The run has a token; the answer names it."""
    UNBOUND = "unbound"
    """The run was never bound, or the caller did not say whom it observed."""
    ALREADY_SCORED = "already_scored"
    """A score is not rolled again."""
    STALE_EPOCH = "stale_epoch"
    """The epoch is not the one that is bound: tombstoned, or never minted."""
    JUDGE_MISMATCH = "judge_mismatch"
    """Another judge answered than the one that was bound."""
    CANDIDATE_MISMATCH = "candidate_mismatch"
    """Another candidate was judged than the one that was bound."""


@dataclass(frozen=True, slots=True)
class JudgeResult(Result[JudgeReason]):
    """The answer of a judge operation."""

    candidate: str | None = None
    judge: str | None = None
    epoch: int | None = None
    """The epoch that is bound now."""
    replays: int | None = None
    """What the batch has spent of its replay budget."""


class Judge(Fence[JudgeResult]):
    """The bindings of one batch's runs. Candidates and judges are opaque, and compared for equality."""

    NAME: ClassVar[str] = "judge"

    async def mint(self, run: RunId, candidate: str, judge: str, epoch: int = 1) -> JudgeResult:
        """Bind a run, once. Answers candidate, judge, epoch as bound now, also when it was bound before."""
        return await self._ask("mint", run=run, candidate=candidate, judge=judge, epoch=epoch)

    async def rebind(self, run: RunId, epoch: int, candidate: str, judge: str) -> JudgeResult:
        """Replace the token of `epoch`, for a run without a score. Answers the new epoch."""
        return await self._ask("rebind", run=run, epoch=epoch, candidate=candidate, judge=judge)

    async def commit(
        self,
        run: RunId,
        observed_candidate: str | None,
        observed_judge: str | None,
        epoch: int,
        score_digest: str,
    ) -> JudgeResult:
        """Sign a score. An identity that the scorer could not observe is None, which is refused as `unbound`.

        Answers replays on commit, duplicate and replay. A mismatch is `reject`, `replay` or `in_doubt`, as the
        batch's policy says.
        """
        return await self._ask(
            "commit",
            run=run,
            observed_candidate=observed_candidate,
            observed_judge=observed_judge,
            epoch=epoch,
            score_digest=score_digest,
        )

    @staticmethod
    def _result(decision: Decision) -> JudgeResult:
        answer = decision.answer
        return JudgeResult(
            decision.verb,
            JudgeReason(decision.reason) if decision.reason else None,
            candidate=answer.get("candidate"),
            judge=answer.get("judge"),
            epoch=answer.get("epoch"),
            replays=answer.get("replays"),
        )
