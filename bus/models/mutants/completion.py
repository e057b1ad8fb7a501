"""The naive policies that fence completion exists against."""

from __future__ import annotations

from collections.abc import Mapping

from bus.models.completion import Completion, Request
from bus.models.model import Answer, Model, reject

__all__ = ["MUTANTS"]


class BindOnShardId(Completion):
    """An answer names its run and its step, and so it is theirs."""

    def _foreign(self, request_id: str, presented: Request) -> Answer | None:
        return None


class BindOnRequestId(Completion):
    """An answer to a request that was really made is taken, whoever holds the run by now."""

    def _foreign(self, request_id: str, presented: Request) -> Answer | None:
        return None if request_id in self.requests else reject("unknown_request")


class LiveLeaseAdopts(Completion):
    """The holder is live, so what it presents for its own shard is taken, also an older holder's request."""

    def _opened_by(self, request_id: str, presented: Request) -> bool:
        opened = self.requests.get(request_id)
        return opened is not None and opened.shard == presented.shard


MUTANTS: Mapping[str, type[Model]] = {
    "bind_on_shard_id": BindOnShardId,
    "bind_on_request_id": BindOnRequestId,
    "live_lease_adopts": LiveLeaseAdopts,
}
"""Policy → the model that follows it."""
