"""The lines of an exported history: one a decision, and chained, so that an edited, dropped or reordered one shows.

    {"format": "evalbus-history", "version": 1, "batch", "plane", "suite", "policy"}
    {"id", "fence", "op", "verb", "reason", "envelope", "args", "answer", "chain"}      one a decision, in stream order
    {"entries": n, "head": "…", "snapshot": {…}|null}                                   or the file was truncated

`chain` is the SHA-256, in hex, of the previous line's chain (64 zeros before the first) followed by this line
without it. Pure: both buses export by it (`bus.export`, `bus.memory.export`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from bus.port import BatchInfo
from bus.types import BatchId, Plane

__all__ = ["EMPTY_CHAIN", "Line", "chained", "header", "spelt"]

EMPTY_CHAIN = "0" * 64
"""Before the first line."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the export, before it is chained."""

    id: str
    fence: str
    op: str
    verb: str
    reason: str | None
    envelope: Mapping[str, Any]
    args: Mapping[str, Any]
    answer: Mapping[str, Any]

    @property
    def ends_batch(self) -> bool:
        """After it nothing of the accepted set can change: the batch is closed, or below its quorum for good."""
        closed = self.verb == "commit" or self.reason == "below_quorum"
        return (self.fence, self.op) == ("histogram", "close") and closed


_FIELDS = tuple(field.name for field in fields(Line))
_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def chained(previous: str, line: Line) -> tuple[str, str]:
    """The line's text without its chain, and its chain."""
    # Its fields by name, and not by `asdict`, which copies every value in depth.
    text = spelt({name: getattr(line, name) for name in _FIELDS})
    return text, hashlib.sha256((previous + text).encode("utf-8")).hexdigest()


def header(plane: Plane, batch: BatchId, info: BatchInfo) -> dict[str, object]:
    """The first line's object."""
    spec = info.spec
    policy = {
        "intended": spec.intended,
        "quorum": spec.quorum,
        "bins": list(spec.bins),
        "bound": spec.bound,
        "max_in_flight": spec.max_in_flight,
        "max_deliveries": spec.max_deliveries,
        "lease_ms": spec.lease_ms,
        "reclaim_ms": spec.reclaim_ms,
        "judge_policy": spec.judge_policy,
        "replay_budget": spec.replay_budget,
        "gate": dict(spec.gate),
        "limits": dict(spec.limits),
    }
    return {
        "format": "evalbus-history",
        "version": 1,
        "batch": batch,
        "plane": plane.value,
        "suite": {"name": spec.suite, "digest": spec.suite_digest},
        "policy": policy,
    }


def spelt(value: object) -> str:
    """A line's one spelling: JSON without blanks, names in the order given, no needless escapes."""
    text = _encoder.encode(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair in what somebody presented: spelt out, so that it can be read
        text = json.dumps(value, separators=(",", ":"))
    return text
