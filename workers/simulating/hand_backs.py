"""Rules by which a machine's fault would be the run's, and ends it: what a bus that counts otherwise would do.

They take the place of `bus.memory.hand_backs.HandBacks`, for tests only: see mutants.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bus.memory.batch import Life
from bus.memory.hand_backs import HandBacks
from bus.types import RunId
from bus.values import UNFIT_ALONE, UNFIT_MACHINES

__all__ = ["RULES", "Lives"]

_FREE: Final = 2
"""Hand-backs that cost nothing by the rule of before. It had twenty: a schedule is too short for so many."""


class CountsHandBacks(HandBacks):
    """So many are free, whoever makes them, and each further one is an attempt. There is no other end."""

    __slots__ = ()

    def noted(self, machine: str, *, alone: bool, seen: bool) -> bool:
        """Nothing."""
        return True

    def is_free(self, machine: str) -> bool:
        """Whoever it is."""
        self.stops += 1
        return self.stops <= _FREE


class CountsRepeats(HandBacks):
    """One machine that says it five times says as much as five."""

    __slots__ = ()

    def noted(self, machine: str, *, alone: bool, seen: bool) -> bool:
        """By how often it was said."""
        if not seen and self.count + 1 >= UNFIT_MACHINES:
            return False
        return HandBacks.noted(self, machine, alone=alone, seen=seen)


class CountsWhatIsSeen(HandBacks):
    """What a machine finds wrong with itself says as much as what it does not."""

    __slots__ = ()

    def noted(self, machine: str, *, alone: bool, seen: bool) -> bool:
        """As if it were not."""
        return HandBacks.noted(self, machine, alone=alone, seen=False)


class CountsWhoeverIsAtWork(HandBacks):
    """Ten times are ten times, whoever else has a run in hand."""

    __slots__ = ()

    def noted(self, machine: str, *, alone: bool, seen: bool) -> bool:
        """As if nobody had."""
        if not seen and self.count + 1 >= UNFIT_ALONE:
            return False
        return HandBacks.noted(self, machine, alone=True, seen=seen)


RULES: Final[Mapping[str, type[HandBacks]]] = {
    "hand_backs_count": CountsHandBacks,
    "repeats_count": CountsRepeats,
    "what_is_seen_counts": CountsWhatIsSeen,
    "whoever_is_at_work": CountsWhoeverIsAtWork,
}
"""By name."""


class Lives(dict[RunId, Life]):
    """The runs of a batch that follows a rule."""

    def __init__(self, rule: type[HandBacks]) -> None:
        """With none in it yet."""
        super().__init__()
        self._rule = rule

    def __setitem__(self, run: RunId, life: Life) -> None:
        """A run that comes to be."""
        for counted in (life.hand_backs, life.score_hand_backs):
            counted.__class__ = self._rule  # it adds no state
        super().__setitem__(run, life)
