"""The naive policies that fence judge exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.judge import Judge, Token
from bus.models.model import Model

__all__ = ["MUTANTS"]


class StickyRouting(Judge):
    """The pool is trusted to route a run to the judge that it had before, so nobody compares."""

    def _foreign(self, bound: Token, observed_candidate: str, observed_judge: str) -> str | None:
        return None


MUTANTS: Mapping[str, type[Model]] = {
    "sticky_routing": StickyRouting,
}
"""Policy → the model that follows it."""
