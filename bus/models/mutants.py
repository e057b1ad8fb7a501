"""The naive policies that the fences exist against, each as its model with one check taken out.

They show two things: that a named property breaks without the check, so that a test of it can fail; and, when
a recorded history is replayed under one of them, what the fence prevented.
"""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.admission import Admission
from bus.models.histogram import Histogram
from bus.models.judge import Judge, Token
from bus.models.model import Answer, Model, reject
from bus.models.transcript import Run, Transcript

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


class StickyRouting(Judge):
    """The pool is trusted to route a run to the judge that it had before, so nobody compares."""

    def _foreign(self, bound: Token, observed_candidate: str, observed_judge: str) -> str | None:
        return None


class AppendByLiveness(Transcript):
    """Some worker is alive on this run, so what comes for it is taken."""

    def _not_holder(self, run: str, lease_id: str, gen: int) -> Answer | None:
        return reject("stale_gen") if self._at(run).live is None else None


class GenOnly(Transcript):
    """The generation is compared, the committed prefix is not."""

    def _forged(self, at: Run, parent: str) -> bool:
        return False


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


MUTANTS: Mapping[str, Mapping[str, type[Model]]] = {
    "histogram": {
        "mutable_mean": MutableMean,
        "quorum_without_digest": QuorumWithoutDigest,
        "close_without_drain": CloseWithoutDrain,
    },
    "judge": {"sticky_routing": StickyRouting},
    "transcript": {"append_by_liveness": AppendByLiveness, "gen_only": GenOnly},
    "admission": {
        "retry_bypasses_bound": RetryBypassesBound,
        "apply_without_live_check": ApplyWithoutLiveCheck,
        "no_reclaim": NoReclaim,
    },
}
"""Fence → policy → the model that follows it."""
