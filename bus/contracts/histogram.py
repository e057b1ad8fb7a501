"""The contract of fence 5, histogram."""

from __future__ import annotations

from bus.contract_table import fence, op

__all__ = ["CONTRACT"]

CONTRACT = fence(
    "histogram",
    op(
        "fence",
        "run str, epoch int, digest str",
        "after_close, unknown_run, epoch_not_newer, already_scored, abandoned, digest_mismatch, backpressure, commit",
    ),
    op(
        "score",
        "run str, digest str, epoch int, bin str, value str",
        "after_close, unknown_run, abandoned, stale_epoch, digest_mismatch, duplicate, score_conflict, commit",
    ),
    op(
        "abandon",
        "run str, epoch int, why str",
        "after_close, unknown_run, duplicate, abandoned, already_scored, stale_epoch, commit",
    ),
    op("drain", "", "duplicate, commit"),
    op(
        "close",
        "",
        "duplicate, in_doubt not_drained, in_doubt in_flight, below_quorum, commit",
        "snapshot_id accepted",
    ),
    op(
        "pass_rate",
        "",
        "below_quorum, open_histogram, commit",
        "passed accepted holes snapshot_id",
    ),
    config="intended strs, quorum int1, bins strs, max_in_flight int1",
    final="status accepted bins holes rows in_flight proposals snapshot_id",
)
