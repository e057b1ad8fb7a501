"""The naive policies that fence transcript exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.model import Answer, Model, reject
from bus.models.transcript import Run, Transcript

__all__ = ["MUTANTS"]


class AppendByLiveness(Transcript):
    """Some worker is alive on this run, so what comes for it is taken."""

    def _not_holder(self, run: str, lease_id: str, gen: int) -> Answer | None:
        return reject("stale_gen") if self._at(run).live is None else None


class GenOnly(Transcript):
    """The generation is compared, the committed prefix is not."""

    def _forged(self, at: Run, parent: str) -> bool:
        return False


MUTANTS: Mapping[str, type[Model]] = {
    "append_by_liveness": AppendByLiveness,
    "gen_only": GenOnly,
}
"""Policy → the model that follows it."""
