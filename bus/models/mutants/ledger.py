"""The naive policies that fence ledger exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.ledger import Attempt, AttemptId, Ledger
from bus.models.model import Answer, Model

__all__ = ["MUTANTS"]


class StepCounter(Ledger):
    """Tokens are counted when a step ends: those of a stream that broke are never counted."""

    def _bill(self, at: Attempt, tokens: int) -> None:
        pass

    def done(self, *, step: str, attempt: int, last_seq: int) -> Answer:
        """Count what came, then end."""
        if at := self.attempts.get(AttemptId(step, attempt)):
            at.billed = sum(chunk.tokens for chunk in at.chunks.values())
        return super().done(step=step, attempt=attempt, last_seq=last_seq)


class CacheTtlForCommits(Ledger):
    """Commits are looked up in a cache, which forgets them after a time.

    Here at once: whatever the time, some queue delivers later.
    """

    def _known_as_committed(self, step: str) -> bool:
        return False


class NoReservation(Ledger):
    """An attempt is admitted while money is left, whatever others that are under way will cost."""

    def _set_aside(self) -> int:
        return 0


class TwoAttemptsCommit(Ledger):
    """Each attempt is an account of its own, and commits when it is complete."""

    def _is_committed(self, step: str) -> bool:
        return False


MUTANTS: Mapping[str, type[Model]] = {
    "step_counter": StepCounter,
    "cache_ttl_for_commits": CacheTtlForCommits,
    "no_reservation": NoReservation,
    "two_attempts_commit": TwoAttemptsCommit,
}
"""Policy → the model that follows it."""
