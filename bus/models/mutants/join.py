"""The naive policies that fence join exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.join import Case, Join
from bus.models.model import Model

__all__ = ["MUTANTS"]


class KeyOnCaseOnly(Join):
    """A case is named by its id, and whatever comes under that id belongs to it."""

    def _is_another(self, at: Case, window: str) -> bool:
        return False


class CommitOnFirstResult(Join):
    """The first answer that comes back completes the case."""

    def _is_complete(self, at: Case) -> bool:
        return bool(at.joined)


MUTANTS: Mapping[str, type[Model]] = {
    "key_on_case_only": KeyOnCaseOnly,
    "commit_on_first_result": CommitOnFirstResult,
}
"""Policy → the model that follows it."""
