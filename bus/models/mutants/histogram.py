"""The naive policies that fence histogram exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.histogram import Histogram
from bus.models.model import Answer, Model

__all__ = ["MUTANTS"]


class MutableMean(Histogram):
    """A running mean: it can be read at any time, and moves under whoever has read it."""

    def _no_number(self) -> Answer | None:
        return None


class QuorumWithoutDigest(Histogram):
    """A score counts for its run whatever bytes were judged."""

    def _foreign(self, run: str, digest: str) -> bool:
        return False


class CloseWithoutDrain(Histogram):
    """The batch closes as soon as enough runs have answered: the slow ones are dropped."""

    def _too_early(self) -> Answer | None:
        return None if len(self.rows) >= self.quorum else super()._too_early()


MUTANTS: Mapping[str, type[Model]] = {
    "mutable_mean": MutableMean,
    "quorum_without_digest": QuorumWithoutDigest,
    "close_without_drain": CloseWithoutDrain,
}
"""Policy → the model that follows it."""
