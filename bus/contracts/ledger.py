"""The contract of fence 10, ledger."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

_ATTEMPT = "step str, attempt int1"

CONTRACT = fence(
    "ledger",
    op("admit", f"{_ATTEMPT}, estimate int", "already_committed, attempt_reused, over_budget, commit"),
    op(
        "chunk",
        f"{_ATTEMPT}, seq int1, tokens int, durable bool",
        "unknown_attempt, duplicate, attempt_closed, commit",
        "billed durable watermark",
    ),
    op(
        "done",
        f"{_ATTEMPT}, last_seq int1",
        "unknown_attempt, duplicate, attempt_closed, already_committed, in_doubt missing_chunks, not_durable, commit",
        "state",
    ),
    op("cut", _ATTEMPT, "unknown_attempt, duplicate, attempt_closed, commit"),
    op("abandon", _ATTEMPT, "unknown_attempt, duplicate, attempt_closed, commit"),
    op(
        "reconcile",
        f"{_ATTEMPT}, gateway_billed int",
        "unknown_attempt, in_doubt attempt_open, duplicate, already_reconciled, below_durable, commit",
    ),
    config="budget int",
    final="spent durable orphan reserved attempts",
)
