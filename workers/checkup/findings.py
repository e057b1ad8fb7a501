"""What the doctor says: one line a question, and what to do where something is to be done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Finding", "Level", "exit_code"]


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    UNKNOWN = "unknown"
    """It could not be looked at: the user may not, or the server does not say. No reason to fail."""
    WARNING = "warning"
    """A batch can run, and something may cost it time, money or safety."""
    PROBLEM = "problem"
    """No batch should be started."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One question and its answer."""

    question: str
    """A word or two: `append-only file`."""
    level: Level
    answer: str
    remedy: str = ""
    """What to do; empty when there is nothing to do."""

    def as_json(self) -> dict[str, str]:
        """Its fields, as `--json` has them."""
        return {"question": self.question, "level": self.level, "answer": self.answer, "remedy": self.remedy}


def exit_code(findings: Iterable[Finding]) -> int:
    """0: nothing to do. 1: warnings. 4: the server cannot be used."""
    levels = {finding.level for finding in findings}
    if Level.PROBLEM in levels:
        return 4
    return 1 if Level.WARNING in levels else 0
