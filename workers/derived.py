"""What a batch came to, by its history alone: as replay has derived it, with no look at any server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from bus.port import BatchStatus
from bus.replay.lines import Header
from bus.replay.replayed import Replayed
from bus.types import BatchId, Digest, Plane, RunId
from workers.gate_rules import GateRules
from workers.outcome import Outcome, Tokens

__all__ = ["derived_outcome"]

_Name = TypeVar("_Name", bound=str)
_Value = TypeVar("_Value")


def derived_outcome(
    header: Header, found: Replayed, details: Mapping[RunId, str] | None = None, estimated: int = 0
) -> Outcome:
    """`details`: what was said at the ends of its runs. `estimated`: of its tokens those that are a guess."""
    policy, status = header.policy, BatchStatus(found.status)
    return Outcome(
        batch=BatchId(found.batch),
        plane=Plane(found.plane),
        status=status,
        snapshot_id=Digest(found.snapshot_id) if found.snapshot_id and status is BatchStatus.CLOSED else None,
        intended=policy["intended"],
        quorum=policy["quorum"],
        accepted=len(found.rows),
        bins={name: found.bins.get(name, 0) for name in policy["bins"]},
        holes=_sorted(Counter(found.holes.values())),
        hole_runs=_sorted(found.holes) if status.ended else {},
        hole_details=(details or {}) if status.ended else {},
        rejects=_sorted(found.refusals),
        runs={run: found.rows[run].bin for run in sorted(found.rows)} if status.ended else {},
        tokens=Tokens(found.spent, found.durable, policy["limits"].get("budget"), estimated),
        rules=GateRules.from_mapping(policy["gate"]),
    )


def _sorted(by_name: Mapping[_Name, _Value]) -> dict[_Name, _Value]:
    return {name: by_name[name] for name in sorted(by_name)}
