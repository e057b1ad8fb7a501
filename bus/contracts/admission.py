"""The contract of fence 11, admission."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "admission",
    op(
        "acquire",
        "step str, lease drawn",
        "duplicate, lease_reused, step_committed, step_in_flight, bound_full, commit",
        "lease gen",
    ),
    op("expire", "lease str", "not_live, commit", "gen"),
    op(
        "apply",
        "lease str, gen int, digest str",
        "duplicate, stale_gen, step_committed, commit",
    ),
    op("release", "lease str", "unknown_lease, double_release, commit"),
    op(
        "reclaim",
        "lease str, cancelled bool",
        "unknown_lease, double_release, still_live, in_doubt cancel_pending, commit",
    ),
    config="bound int1, reclaim_ms int1",
    final="in_flight live committed",
)
