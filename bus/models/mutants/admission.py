"""The naive policies that fence admission exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.admission import Admission
from bus.models.model import Model

__all__ = ["MUTANTS"]


class RetryBypassesBound(Admission):
    """A step that timed out is sent again at once: it had a slot already."""

    def _full(self, step: str) -> bool:
        retry = any(lease.step == step for lease in self.leases.values())
        return not retry and super()._full(step)


class ApplyWithoutLiveCheck(Admission):
    """A body that came is used, whoever has given up waiting for it."""

    def _stale(self, lease: str, gen: int) -> bool:
        return self.leases[lease].gen != gen


class NoReclaim(Admission):
    """A slot comes back with its answer only: an answer that never comes keeps it for ever."""

    def _may_still_answer(self, expired_ms: int, cancelled: bool) -> bool:
        return True


MUTANTS: Mapping[str, type[Model]] = {
    "retry_bypasses_bound": RetryBypassesBound,
    "apply_without_live_check": ApplyWithoutLiveCheck,
    "no_reclaim": NoReclaim,
}
"""Policy → the model that follows it."""
