"""One line of an export, as everybody here is given it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Said"]


class Said(NamedTuple):
    """One line: one decision. There are millions, and a tuple is made several times faster."""

    id: str
    entry: str
    part: int
    """From 1; 0 for an operation that is no part of a step."""
    ms: int
    """The server's time of the entry."""
    fence: str
    op: str
    verb: str
    reason: str | None
    envelope: Mapping[str, Any]
    args: Mapping[str, Any]
    answer: Mapping[str, Any]

    @property
    def done(self) -> bool:
        """It was applied now."""
        return self.verb == "commit"
