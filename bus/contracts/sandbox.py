"""The contract of fence 8, sandbox."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "sandbox",
    op("plan", "step str, escapes bool", "duplicate, step_conflict, commit"),
    op(
        "acquire",
        "workspace str, known_index int, command drawn",
        "duplicate, command_reused, unknown_index, commit",
        "epoch kept",
    ),
    op("heartbeat", "workspace str, epoch int", "stale_epoch, commit"),
    op("preempt", "workspace str, epoch int", "stale_epoch, commit"),
    op(
        "write",
        "workspace str, step str, epoch int, path str, digest str, receipt drawn",
        "duplicate, unknown_step, stale_epoch, compensate, step_conflict, receipt_reused, commit",
        "receipt log_index undo_id",
    ),
    op(
        "join",
        "workspace str, step str, receipt str, epoch int",
        "unknown_step, duplicate, unknown_receipt, compensate, stale_epoch, commit",
        "state undo_id",
    ),
    config="heartbeat_ms int1",
    final="steps held compensations",
)
