"""The contract of fence 7, transcript."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "transcript",
    op(
        "lease",
        "run str, lease_id str",
        "sealed, duplicate, lease_reused, commit",
        "gen head length unresolved",
    ),
    op("fence", "run str, gen int", "stale_gen, commit"),
    op("resume", "run str, lease_id str, gen int", "stale, commit", "head length"),
    op(
        "append",
        "run str, lease_id str, gen int, parent str, seq int1, payload str, intent str?",
        "run_mismatch, stale_gen, lease_mismatch, sealed, duplicate, forged_prefix, seq_gap, intent_mismatch, commit",
        "head",
    ),
    op(
        "intend",
        "run str, lease_id str, gen int, parent str, seq int1, digest str",
        "run_mismatch, stale_gen, lease_mismatch, sealed, in_doubt dangling, duplicate, "
        "intent_conflict, forged_prefix, seq_gap, commit",
    ),
    op(
        "seal",
        "run str, lease_id str, gen int, head str",
        "run_mismatch, stale_gen, lease_mismatch, duplicate, sealed, forged_prefix, in_doubt unresolved_intent, commit",
    ),
    config="",
    final="transcripts dead_letters",
)
