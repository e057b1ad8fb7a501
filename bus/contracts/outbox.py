"""The contract of fence 2, outbox."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "outbox",
    op(
        "put",
        "intent_id str, gen int, tool str, args obj",
        "duplicate, args_mismatch, commit",
        "gen state tool args observation",
    ),
    op(
        "claim",
        "intent_id str, gen int, executor str",
        "unknown_intent, stale_gen, duplicate, not_queued, executor_reused, commit",
        "tool args",
    ),
    op(
        "sent",
        "intent_id str, gen int, executor str",
        "unknown_intent, stale_gen, duplicate, not_claimed, commit",
    ),
    op(
        "complete",
        "intent_id str else unkeyed, gen int else unkeyed, executor str else unkeyed, "
        "ok bool, echo str?, observation str",
        "unkeyed, unknown_intent, stale_gen, duplicate, already_final, not_claimed, in_doubt missing_echo, commit",
        "state",
    ),
    op("advance", "intent_id str, gen int", "unknown_intent, stale_gen, commit", "gen state"),
    op(
        "recover",
        "intent_id str",
        "unknown_intent, duplicate, commit, in_doubt awaiting_ack, stuck, compensate",
        "state undo_id observation",
    ),
    op(
        "revoke",
        "intent_id str, gen int",
        "unknown_intent, stale_gen, duplicate, not_committed, stuck, commit",
        "undo_id",
    ),
    config="ack_bound_ms int1, inverses obj",
    final="intents",
)
