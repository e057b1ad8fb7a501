"""Average lap times of a runner."""

from __future__ import annotations

from collections.abc import Sequence


def average_lap(seconds: Sequence[float]) -> float | None:
    """Return the mean lap time, or None when no lap was run."""
    if not seconds:
        return None
    return sum(seconds) / len(seconds)


def describe(seconds: Sequence[float]) -> str:
    """Return the average as `m:ss`, or `no laps`."""
    average = average_lap(seconds)
    if average is None:
        return "no laps"
    minutes, rest = divmod(round(average), 60)
    return f"{minutes}:{rest:02d}"
