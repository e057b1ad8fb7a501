"""Closed batches for the tests of the gate and of what it tells, made up: no server is asked.

found({"a#1": "pass", "b#1": "fail"}, holes={"c#1": "poison"}, gate={"min_pass_rate": 0.6})
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from bus.port import BatchSpec, BatchStatus
from bus.snapshot import ScoreRow, Snapshot
from bus.types import BatchId, Digest, Plane, RunId
from workers.gating.rules import GateRules
from workers.gating.sources import Found
from workers.results.outcome import Outcome, Tokens

__all__ = ["HOSTILE", "found", "snapshot", "spec"]

HOSTILE = [
    "]]><testcase name='x'/>",
    "\x1b[2J\x1b[31mred",
    "\x00\x08\x0b\ufffe\uffff",
    "two\nlines\r\nand\ta tab",
    "</testsuite></testsuites>",
    "&quot;&#0;&amp;<!--",
    "\u202eegap\u200b",
    "::error file=x::boo",
]
"""What a case id can hold in a file from elsewhere, or a solver's last words anywhere."""


def snapshot(bins: Mapping[str, str], holes: Mapping[str, str] | None = None, quorum: int = 1) -> Snapshot:
    """Of scored runs with their bins, and holes with their reasons."""
    holes = holes or {}
    rows = tuple(ScoreRow(RunId(run), f"sealed {run}", 1, bins[run], "7") for run in sorted(bins))
    counts = Counter(bins.values())
    return Snapshot(
        intended=len(bins) + len(holes),
        quorum=quorum,
        bins={name: counts[name] for name in ("pass", "fail")},
        holes={RunId(run): holes[run] for run in sorted(holes)},
        rows=rows,
    )


def found(
    bins: Mapping[str, str],
    *,
    holes: Mapping[str, str] | None = None,
    details: Mapping[str, str] | None = None,
    gate: Mapping[str, Any] | None = None,
    status: BatchStatus = BatchStatus.CLOSED,
    name: str = "nightly",
    candidate: str = "c1",
    spent: int = 0,
    quorum: int = 1,
) -> Found:
    """A batch that closed with them; of another `status` with the same counts and without a snapshot."""
    taken = snapshot(bins, holes, quorum)
    ended = status.ended
    outcome = Outcome(
        batch=BatchId(name),
        plane=Plane.LIVE,
        status=status,
        snapshot_id=Digest(taken.snapshot_id) if status is BatchStatus.CLOSED else None,
        intended=taken.intended,
        quorum=quorum,
        accepted=taken.accepted,
        bins=taken.bins,
        holes=dict(sorted(Counter(taken.holes.values()).items())),
        hole_runs=taken.holes if ended else {},
        hole_details={RunId(run): said for run, said in (details or {}).items()},
        rejects={},
        runs={row.run: row.bin for row in taken.rows} if ended else {},
        tokens=Tokens(spent, spent),
        rules=GateRules.from_mapping(gate or {}),
    )
    return Found(outcome, name, "suite", "d" * 64, candidate, "j1", gate or {}, taken if ended else None)


def spec(intended: int, *, quorum: int = 2, bins: tuple[str, ...] = ("pass", "fail")) -> BatchSpec:
    """A batch's declaration, as far as a snapshot depends on it."""
    return BatchSpec(
        batch=BatchId("b"),
        suite="s",
        suite_digest=Digest("0" * 64),
        suite_path="/suite",
        intended=intended,
        quorum=quorum,
        bins=bins,
        bound=8,
        max_in_flight=8,
        max_deliveries=5,
        lease_ms=10_000,
    )
