"""The contract of fence 9, workspace."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "workspace",
    op("record", "step str, gen int1, tree_hash str", "duplicate, stale_gen, commit"),
    op(
        "attach",
        "step str, gen int, tree_hash str, verdict str, schema str",
        "stale_gen, tree_hash, duplicate, already_attached, commit",
    ),
    op("supersede", "step str, gen int, tree_hash str", "stale_gen, commit", "gen"),
    config="schemas strs",
    final="steps cleared",
)
