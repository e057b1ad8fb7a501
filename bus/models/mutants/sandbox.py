"""The naive policies that fence sandbox exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.model import Model
from bus.models.sandbox import Sandbox, Step

__all__ = ["MUTANTS"]


class ReceiptOutlivesItsEpoch(Sandbox):
    """Whoever holds the workspace joins what its predecessor was given a receipt for."""

    def _gone(self, at: Step) -> bool:
        return False


class CommitOn200(ReceiptOutlivesItsEpoch):
    """The write was acknowledged, so it is done: nobody asks whether that replica is still there."""

    def _ended(self, workspace: str, epoch: int) -> bool:
        return False


MUTANTS: Mapping[str, type[Model]] = {
    "commit_on_200": CommitOn200,
    "receipt_outlives_its_epoch": ReceiptOutlivesItsEpoch,
}
"""Policy → the model that follows it."""
