"""The contract of fence 12, join."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "join",
    op(
        "admit",
        "case str, expected strs, window_cost int",
        "case_closed, duplicate, expected_mismatch, over_budget, commit",
        "window remaining",
    ),
    op(
        "result",
        "case str, attempt str, window str, tokens int, ok bool",
        "unknown_case, late, window_mismatch, duplicate_attempt, unknown_attempt, window_exhausted, commit",
        "state",
    ),
    op("commit", "case str, verdict str", "duplicate, already_committed, not_joined, commit", "remaining"),
    op("expire", "case str", "unknown_case, not_open, commit"),
    config="budget int, budget_epoch int",
    final="remaining cases",
)
