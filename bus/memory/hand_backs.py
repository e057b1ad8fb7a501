"""When a run that machines hand back, for a fault of theirs, is at fault itself.

Of one machine one word counts: it may have the run again and again while all others are busy. And none of one that
finds by its own look what is wrong with it. What the run does to many is its own doing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bus.values import UNFIT_ALL, UNFIT_ALONE, UNFIT_MACHINES

__all__ = ["Unfit", "is_machine"]


@dataclass(slots=True)
class Unfit:
    """Those that could not do one run, or one score."""

    machines: set[str] = field(default_factory=set)
    count: int = 0
    alone: int = 0

    def noted(self, machine: str, *, alone: bool, seen: bool) -> bool:
        """Note one more. `alone`: nobody else is at work on the batch. False, and nothing is noted: it is the run."""
        machines, count, lone = self.machines, self.count + 1, self.alone
        if not seen:
            machines, lone = {*machines, machine}, lone + alone
        if len(machines) >= UNFIT_MACHINES or lone >= UNFIT_ALONE or count >= UNFIT_ALL:
            return False
        self.machines, self.count, self.alone = machines, count, lone
        return True


def is_machine(name: str) -> bool:
    """Whether it can be noted: a word, or nothing."""
    return all(letter > " " and letter != "\x7f" for letter in name)
