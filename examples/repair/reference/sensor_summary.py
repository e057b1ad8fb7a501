"""A summary of sensor readings, some of which failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """What the valid readings have in common; `mean` is rounded to two places."""

    count: int
    lowest: float
    highest: float
    mean: float


def summarise(readings: Iterable[float | None]) -> Summary | None:
    """Return the summary of `readings`, or None if none is valid. A failed reading is None."""
    valid = [reading for reading in readings if reading is not None]
    lowest = min(valid, default=None)
    if lowest is None:
        return None
    highest = max(valid, default=lowest)
    count = sum(1 for _ in valid)
    mean = round(sum(valid) / max(count, 1), 2)
    return Summary(count, lowest, highest, mean)


def spread(readings: Iterable[float | None]) -> float:
    """Return the distance between the lowest and the highest valid reading, 0.0 if there is none."""
    summary = summarise(readings)
    return 0.0 if summary is None else summary.highest - summary.lowest
