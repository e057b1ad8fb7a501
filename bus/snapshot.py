"""The closed set of a batch, and the name that it is known by.

The problem: a number that is computed from "what is there now" moves when a late result lands, and two people
who quote it quote two numbers. A snapshot is the whole accepted set at the close, in one canonical spelling,
named by the SHA-256 of those bytes. Whoever has the rows can compute the name again; any other set, order of
arrival aside, has another.

What arrives in another order may not change the name, so rows and holes are sorted, and the counts of
refusals, which do depend on the order of arrival, stand beside the snapshot and never in it.

Pure: no server, no clock. The planner computes it to close a batch, every reader computes it again to check.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bus.errors import ViolationError
from bus.port import BatchSpec, RunEnd, RunRow, RunState
from bus.types import Digest, RunId

__all__ = ["ScoreRow", "Snapshot"]


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One accepted score: `digest` is that of what was sealed, `epoch` the scoring epoch that signed it."""

    run: RunId
    digest: str
    epoch: int
    bin: str
    value: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The accepted set of a batch in which every intended run has ended.

    `bins`   every declared bin with its count, in the order of the declaration: the first is the one that
             passes.
    `holes`  run to reason: runs that ended without a score.
    `rows`   the accepted scores, sorted by run.
    """

    intended: int
    quorum: int
    bins: Mapping[str, int]
    holes: Mapping[RunId, str]
    rows: tuple[ScoreRow, ...]

    @classmethod
    def from_rows(cls, rows: Iterable[RunRow | RunEnd], spec: BatchSpec) -> Snapshot:
        """Take the snapshot of a batch from its runs, in any order.

        Raises `ViolationError` when the rows are not a closed set: one run twice, a run that has not ended,
        fewer or more runs than were declared, a bin that was not.
        """
        batch = spec.batch
        bins = dict.fromkeys(spec.bins, 0)
        holes: dict[RunId, str] = {}
        scored: dict[RunId, ScoreRow] = {}
        for row in rows:
            if row.run in scored or row.run in holes:
                raise ViolationError(f"batch {batch}: run {row.run} is there twice")
            if not row.state.ended:
                raise ViolationError(f"batch {batch}: run {row.run} is {row.state}: it has not ended")
            if row.state is RunState.HOLE:
                holes[row.run] = row.hole
                continue
            if row.bin not in bins:
                raise ViolationError(f"batch {batch}: run {row.run} has bin {row.bin!r}, never declared")
            bins[row.bin] += 1
            scored[row.run] = ScoreRow(row.run, row.digest, row.epoch, row.bin, row.value)
        if len(scored) + len(holes) != spec.intended:
            ended = len(scored) + len(holes)
            raise ViolationError(f"batch {batch}: {ended} runs have ended, {spec.intended} were declared")
        return cls(
            intended=spec.intended,
            quorum=spec.quorum,
            bins=bins,
            holes={run: holes[run] for run in sorted(holes)},
            rows=tuple(scored[run] for run in sorted(scored)),
        )

    @property
    def accepted(self) -> int:
        """How many runs have an accepted score: the denominator of the pass rate."""
        return len(self.rows)

    @property
    def passed(self) -> int:
        """How many of them are in the bin that passes."""
        return next(iter(self.bins.values()))

    def canonical_bytes(self) -> bytes:
        """The one spelling that is hashed: JSON in UTF-8, keys sorted, no blanks, no needless escapes.

        "Sorted" means by the bytes of the UTF-8 text. Python sorts text by code point, which is the same
        order: UTF-8 was made so that it is. (UTF-16, which other languages sort by, is not: a reader in one
        of those must take care of characters above U+FFFF.)
        """
        content = {
            "accepted": self.accepted,
            "bins": dict(self.bins),
            "holes": sorted([run, why] for run, why in self.holes.items()),
            "intended": self.intended,
            "quorum": self.quorum,
            "rows": sorted([row.run, row.digest, row.epoch, row.bin, row.value] for row in self.rows),
        }
        return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()

    @property
    def snapshot_id(self) -> Digest:
        """SHA-256 of `canonical_bytes()`, in lower-case hex."""
        return Digest(hashlib.sha256(self.canonical_bytes()).hexdigest())
