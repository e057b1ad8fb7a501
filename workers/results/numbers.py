"""What a pass rate is worth: its interval, and its bounds over the holes.

The interval answers "how far could chance alone have moved it", the bounds answer "how far could the runs
that were never scored move it". They are different doubts, and a small interval says nothing about a big
hole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

__all__ = ["Interval", "bounds", "wilson"]


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, both included, both in [0, 1]."""

    low: float
    high: float


def wilson(passed: int, accepted: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of `passed` out of `accepted` scored runs.

    It keeps to [0, 1] and holds its level for few runs and for rates near 0 and 1, where the textbook's
    normal interval does neither. With nothing scored, nothing is known: [0, 1].
    """
    _check(passed, accepted, accepted)
    if accepted == 0:
        return Interval(0.0, 1.0)
    # Wilson 1927. scipy.stats has it too, and is what a test checks this against; its import would take every command
    # that shows a rate longer than all else that it does.
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate, square = passed / accepted, z * z / accepted
    middle = (rate + square / 2) / (1 + square)
    half = z / (1 + square) * math.sqrt(rate * (1 - rate) / accepted + square / (4 * accepted))
    low = 0.0 if passed == 0 else middle - half  # exactly, whatever the roundings
    return Interval(low, 1.0 if passed == accepted else middle + half)


def bounds(passed: int, accepted: int, intended: int) -> Interval:
    """The pass rate of all `intended` runs if every hole had failed, and if every hole had passed."""
    _check(passed, accepted, intended)
    if intended == 0:
        return Interval(0.0, 1.0)
    return Interval(passed / intended, (passed + intended - accepted) / intended)


def _check(passed: int, accepted: int, intended: int) -> None:
    if not 0 <= passed <= accepted <= intended:
        raise ValueError(f"{passed} passed of {accepted} scored of {intended} intended is not possible")
