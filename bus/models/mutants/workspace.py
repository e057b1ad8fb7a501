"""The naive policies that fence workspace exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.model import Model
from bus.models.workspace import Tested, Workspace

__all__ = ["MUTANTS"]


class GenOnly(Workspace):
    """The generation is compared, the tree is taken on trust: whatever was on the worker's disk was tested."""

    def _drifted(self, now: Tested, tree_hash: str) -> bool:
        return False


class JobIdOnly(GenOnly):
    """A verdict names its step, and that is enough: the queue gives each job to one worker."""

    def _stale(self, now: Tested, gen: int) -> bool:
        return False


MUTANTS: Mapping[str, type[Model]] = {
    "job_id_only": JobIdOnly,
    "gen_only": GenOnly,
}
"""Policy → the model that follows it."""
