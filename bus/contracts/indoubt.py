"""The contract of fence 3, indoubt."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "indoubt",
    op("turn", "run str, epoch int", "stale_epoch, duplicate, commit"),
    op(
        "reserve",
        "run str, slot str, key str, epoch int, ttl_ms int1, lease_id drawn",
        "already_decided, stale_epoch, duplicate, in_doubt recover_first, slot_busy, commit",
        "lease_id slot",
    ),
    op(
        "prepare",
        "run str, lease_id str, key str, epoch int",
        "already_decided, lease_mismatch, stale_epoch, lease_expired, in_doubt already_prepared, commit",
    ),
    op(
        "bind",
        "run str, lease_id str, key str, epoch int, result str",
        "duplicate, already_decided, lease_mismatch, stale_epoch, lease_expired, not_prepared, commit",
    ),
    op(
        "recover",
        "run str, key str, epoch int",
        "commit, in_doubt lease_live, compensate, never_started",
        "result undo_id",
    ),
    config="",
    final="outcomes slots epochs compensations",
)
