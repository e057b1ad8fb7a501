"""Merging of time slots that overlap or touch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Slot:
    """A stretch of minutes: `start` belongs to it, `end` does not."""

    start: int
    end: int


def merge(slots: list[Slot]) -> list[Slot]:
    """Return the fewest slots that cover the same minutes, sorted by start."""
    merged: list[Slot] = []
    for slot in sorted(slots):
        if merged and slot.start <= merged[-1].end:
            merged[-1] = Slot(merged[-1].start, max(merged[-1].end, slot.end))
        else:
            merged.append(slot)
    return merged


def covered_minutes(slots: list[Slot]) -> int:
    """Return how many minutes at least one slot covers."""
    return sum(slot.end - slot.start for slot in merge(slots))
