"""The contract of fence 6, judge."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "judge",
    op(
        "mint",
        "run str, candidate str, judge str, epoch int1",
        "already_bound, commit",
        "candidate judge epoch",
    ),
    op(
        "rebind",
        "run str, epoch int1, candidate str, judge str",
        "unbound, already_scored, stale_epoch, commit",
        "epoch",
    ),
    op(
        "commit",
        "run str, observed_candidate str else unbound, observed_judge str else unbound, epoch int1, score_digest str",
        "unbound, stale_epoch, judge_mismatch, in_doubt judge_mismatch, replay judge_mismatch, "
        "candidate_mismatch, in_doubt candidate_mismatch, replay candidate_mismatch, duplicate, "
        "already_scored, commit",
        "replays",
    ),
    config="policy reject|replay|review, replay_budget int",
    final="tokens rows tombstones replays review",
)
