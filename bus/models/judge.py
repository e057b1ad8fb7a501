"""Fence 6, judge: the critic that was bound signs the score.

Problem   a pool swaps the judge, or routes to another candidate, between the transcript and the score: the
          row then says something about a pair that nobody chose.
States    unbound ── mint ──▶ bound at epoch 1 ── rebind ──▶ bound at epoch+1 … ── commit ──▶ scored (an end)
          a mismatch goes by the policy: refused, asked again under a rebind, or queued for a person.
Invariants
  J1 each row equals the token that its run is bound to.     J2 a row never changes.
  J3 a tombstoned epoch never signs.                         J4 replays never pass the budget.
  J5 only runs without a score wait for review.              L1 a fresh pair can be bound, and sign.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from bus.models.model import Answer, Model, commit, duplicate, in_doubt, reject, replay

__all__ = ["Judge", "Row", "Token"]


@dataclass(frozen=True, slots=True)
class Token:
    """Who may sign a run's score, and for whom. Bindings are opaque."""

    candidate: str
    judge: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Row:
    """A signed score, with the identities that were observed."""

    candidate: str
    judge: str
    epoch: int
    digest: str


class Judge(Model):
    """The bindings of one batch."""

    FENCE = "judge"
    CONFIG = "policy reject|replay|review, replay_budget int"
    OPS: ClassVar = {
        "mint": "run str, candidate str, judge str, epoch int1",
        "rebind": "run str, epoch int1, candidate str, judge str",
        "commit": "run str, observed_candidate str else unbound, observed_judge str else unbound, "
        "epoch int1, score_digest str",
    }

    def __init__(self, *, policy: str, replay_budget: int, draw: Callable[[], str] | None = None) -> None:
        """`replay_budget` counts for the batch, under the policy `replay` only."""
        super().__init__(draw=draw)
        self.policy = policy
        self.replay_budget = replay_budget
        self.tokens: dict[str, Token] = {}
        self.tombstones: dict[str, list[int]] = {}
        self.rows: dict[str, Row] = {}
        self.review: set[str] = set()
        self.replayed: set[tuple[str, int]] = set()
        """The (run, epoch) that were asked again: each is charged once, however often it comes."""

    def mint(self, *, run: str, candidate: str, judge: str, epoch: int) -> Answer:
        if bound := self.tokens.get(run):
            return reject("already_bound", candidate=bound.candidate, judge=bound.judge, epoch=bound.epoch)

        self.tokens[run] = Token(candidate, judge, epoch)
        return commit(candidate=candidate, judge=judge, epoch=epoch)

    def rebind(self, *, run: str, epoch: int, candidate: str, judge: str) -> Answer:
        bound = self.tokens.get(run)
        if bound is None:
            return reject("unbound")
        if run in self.rows:
            return reject("already_scored")
        if epoch != bound.epoch:
            return reject("stale_epoch")

        self.tokens[run] = Token(candidate, judge, epoch + 1)
        self.tombstones.setdefault(run, []).append(epoch)
        self.review.discard(run)
        return commit(epoch=epoch + 1)

    def commit(
        self, *, run: str, observed_candidate: str, observed_judge: str, epoch: int, score_digest: str
    ) -> Answer:
        bound = self.tokens.get(run)
        if bound is None:
            return reject("unbound")
        if epoch != bound.epoch:
            return reject("stale_epoch")
        if foreign := self._foreign(bound, observed_candidate, observed_judge):
            return self._by_policy(run, epoch, foreign)
        if run in self.rows:
            same = self.rows[run].digest == score_digest
            return duplicate(replays=self.replays) if same else reject("already_scored")

        self.rows[run] = Row(observed_candidate, observed_judge, epoch, score_digest)
        self.review.discard(run)
        return commit(replays=self.replays)

    def _foreign(self, bound: Token, observed_candidate: str, observed_judge: str) -> str | None:
        """Which identity is not the one that was bound."""
        if observed_judge != bound.judge:
            return "judge_mismatch"
        if observed_candidate != bound.candidate:
            return "candidate_mismatch"
        return None

    def _by_policy(self, run: str, epoch: int, mismatch: str) -> Answer:
        """What follows a mismatch. A scored run has nothing left to decide."""
        if run in self.rows or self.policy == "reject":
            return reject(mismatch)
        if self.policy == "review":
            self.review.add(run)
            return in_doubt(mismatch)
        if (run, epoch) not in self.replayed and self.replays >= self.replay_budget:
            return reject(mismatch)
        self.replayed.add((run, epoch))
        return replay(mismatch, replays=self.replays)

    @property
    def replays(self) -> int:
        """What was charged to the replay budget."""
        return len(self.replayed)

    def state(self) -> dict[str, object]:
        """See `Model.state`."""
        return {
            "tokens": {
                run: {"candidate": token.candidate, "judge": token.judge, "epoch": token.epoch}
                for run, token in self.tokens.items()
            },
            "rows": {
                run: {
                    "candidate": row.candidate,
                    "judge": row.judge,
                    "epoch": row.epoch,
                    "digest": row.digest,
                }
                for run, row in self.rows.items()
            },
            "tombstones": {run: list(epochs) for run, epochs in self.tombstones.items()},
            "replays": self.replays,
            "review": sorted(self.review),
        }
