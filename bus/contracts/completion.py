"""The contract of fence 4, completion."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

_REQUEST = "run str, step str, lease_id str, gen int, request_id str, prompt_hash str"

CONTRACT = fence(
    "completion",
    op("lease", "run str, lease_id str", "retries_exhausted, duplicate, lease_reused, commit", "gen"),
    op("fence", "run str, gen int", "stale_lease, commit"),
    op("open", _REQUEST, "stale_lease, duplicate, request_reused, already_bound, retries_exhausted, commit"),
    op(
        "bind",
        f"{_REQUEST}, payload_ok bool, digest str",
        "after_close, stale_lease, unknown_request, superseded, prompt_hash, duplicate, already_bound, "
        "retries_exhausted, replay payload_corrupt, commit",
        "model_left",
    ),
    op("close", "", "duplicate, commit"),
    config="compute_retries int, model_retries int",
    final="closed runs bound",
)
