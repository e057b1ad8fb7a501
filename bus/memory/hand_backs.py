"""What becomes of one that is handed back: whether it counts as an attempt, and when it is at fault itself.

Of one machine one word counts: it may have the run again and again while all others are busy. And none of one that
finds by its own look what is wrong with it. What the run does to many is its own doing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bus.values import FREE_HAND_BACKS, UNFIT_ALL, UNFIT_ALONE, UNFIT_MACHINES

__all__ = ["HandBacks", "is_machine"]


@dataclass(slots=True)
class HandBacks:
    """Of one run, or of one score."""

    stops: int = 0
    """By who had to stop."""
    machines: set[str] = field(default_factory=set)
    """Those that could not do it …"""
    count: int = 0
    """… and how often that was said."""
    alone: int = 0
    """Likewise, while nobody else was at work. It and `machines` leave out what a machine itself finds."""

    def noted(self, machine: str, *, alone: bool, seen: bool) -> bool:
        """Note one more. `alone`: nobody else is at work on the batch. False, and nothing is noted: it is the run."""
        machines, count, lone = self.machines, self.count + 1, self.alone
        if not seen:
            machines, lone = {*machines, machine}, lone + alone
        if len(machines) >= UNFIT_MACHINES or lone >= UNFIT_ALONE or count >= UNFIT_ALL:
            return False
        self.machines, self.count, self.alone = machines, count, lone
        return True

    def is_free(self, machine: str) -> bool:
        """Whether this one is no attempt. `machine`: it was noted; empty: of who had to stop, which is counted here."""
        self.stops += not machine
        return bool(machine) or self.stops <= FREE_HAND_BACKS


def is_machine(name: str) -> bool:
    """Whether it can be noted: a word, or nothing."""
    return all(letter > " " and letter != "\x7f" for letter in name)
