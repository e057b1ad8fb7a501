"""The contract of fence 1, plane."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "plane",
    op("rewrite", "run str, step str", "commit", "key"),
    op(
        "admit",
        "key str, plane str, admission drawn",
        "admission_reused, duplicate, plane_key, duplicate_key, capacity, commit",
        "admission",
    ),
    op(
        "write",
        "admission str, key str, plane str, body str",
        "not_admitted, plane_key, plane_header, duplicate_key, commit",
    ),
    op(
        "undo",
        "admission str, key str, plane str",
        "not_admitted, plane_key, plane_header, not_written, duplicate, commit",
    ),
    op("release", "admission str", "not_admitted, duplicate, commit"),
    config="capacity int",
    final="rows live_keys in_flight crossed undo",
)
