"""One entry of a history as a value, in whichever form it was kept (`bus.entries` reads them)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bus.types import EntryId

__all__ = ["Part", "Recorded"]


@dataclass(frozen=True, slots=True)
class Part:
    """One fence operation's decision within a command."""

    fence: str
    op: str
    verb: str
    reason: str | None
    args: Mapping[str, Any]
    """Those that the envelope does not hold under the same name."""
    answer: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One entry of the history. `presented`: the other arguments of a refused command, by position from 2."""

    id: EntryId
    command: str
    envelope: Mapping[str, Any]
    parts: tuple[Part, ...]
    presented: Mapping[int, bytes]
    exported: bool = False
    """Read back from an export: the parts have all their arguments, in the form in which they stand there."""

    @property
    def joint(self) -> bool:
        """Made by a step of the pipeline, not by one fence operation alone."""
        return self.command.startswith("run.")
