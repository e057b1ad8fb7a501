"""The naive policies that fence indoubt exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.indoubt import InDoubt, Outcome, Pair, Ref
from bus.models.model import Answer, Model

__all__ = ["MUTANTS"]


class BlindReplay(InDoubt):
    """A call that timed out is made again: it is taken for one that failed."""

    def _answered_for(self, at: Pair) -> bool:
        return self.live(at) and at.outcome is Outcome.NONE

    def _may_be_out(self, at: Pair) -> bool:
        return False


class ImpostorDecides(InDoubt):
    """A result under another lease shows that something is wrong, and ends the call."""

    def bind(self, *, run: str, lease_id: str, key: str, epoch: int, result: str) -> Answer:
        answer = super().bind(run=run, lease_id=lease_id, key=key, epoch=epoch, result=result)
        ref = Ref(run, key, epoch)
        if answer.reason == "lease_mismatch" and ref in self.pairs:
            self.pairs[ref].outcome = Outcome.REJECT
        return answer


class RecoverWithoutTombstone(InDoubt):
    """A call that was given up is undone, and then its result comes in."""

    def _tombstone(self, ref: Ref, at: Pair) -> None:
        pass


class SecondPrepareStarts(InDoubt):
    """Asking again gets the same answer: for a licence that is two of them."""

    def _started(self, at: Pair) -> bool:
        return False


MUTANTS: Mapping[str, type[Model]] = {
    "blind_replay": BlindReplay,
    "impostor_decides": ImpostorDecides,
    "recover_without_tombstone": RecoverWithoutTombstone,
    "second_prepare_starts": SecondPrepareStarts,
}
"""Policy → the model that follows it."""
