"""The shortest list of faults that still breaks the property: delta debugging over the list.

Halves are left out, then quarters, and so on to single faults, as long as the property still breaks without them. What
is left is minimal in this sense: without any one of its faults the property holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from workers.simulating.faults import Fault
from workers.simulating.schedule import Schedule

__all__ = ["minimal", "shrunk"]

_MOST: Final = 300
"""Schedules that are played for it."""


def shrunk(schedule: Schedule, faults: Sequence[Fault], property_: str) -> Schedule:
    """The schedule with as few of the faults as still break the property."""

    def breaks(some: Sequence[Fault]) -> bool:
        _, finding = schedule.of(some).found()
        return any(one.id == property_ for one in finding.violations)

    return schedule.of(minimal(list(faults), breaks))


def minimal(faults: list[Fault], breaks: Callable[[Sequence[Fault]], bool], most: int = _MOST) -> list[Fault]:
    """ddmin. `breaks` is asked `most` times at most."""
    parts, asked = 2, 0
    while faults and asked < most:
        size = -(-len(faults) // parts)
        pieces = [faults[at : at + size] for at in range(0, len(faults), size)]
        for number in range(len(pieces)):
            rest = [fault for at, piece in enumerate(pieces) if at != number for fault in piece]
            asked += 1
            if breaks(rest):
                faults, parts = rest, max(parts - 1, 2)
                break
        else:
            if parts >= len(faults):
                break
            parts = min(2 * parts, len(faults))
    return faults
