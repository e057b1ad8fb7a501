"""Medians, and how far the single measurements lie apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = ["Spread", "quantile", "ratios"]


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure that was measured once a round; `values` in the order of the rounds, never empty."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Raises ValueError when there are none."""
        found = tuple(values)
        if not found:
            raise ValueError("no measurement, no spread")
        return cls(found)

    @property
    def median(self) -> float:
        """What is quoted."""
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def most(self) -> float:
        """The largest."""
        return max(self.values)

    def as_json(self) -> dict[str, object]:
        """The median, the extremes, and each round's own."""
        return {
            "median": _shown(self.median),
            "min": _shown(self.least),
            "max": _shown(self.most),
            "rounds": [_shown(one) for one in self.values],
        }


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """The quotient of each round: both sides had the same minute. Raises ValueError for sides of different lengths."""
    return Spread.of(one / other for one, other in zip(ours, theirs, strict=True))


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all are not above (nearest rank): a value that did occur, never one between.

    Raises ValueError when there are none, or for a share that is not in (0, 1].
    """
    if not values or not 0 < share <= 1:
        raise ValueError("a quantile needs values, and a share above 0 and not above 1")
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _shown(value: float) -> float:
    """Four digits: the fifth is noise."""
    return float(f"{value:.4g}") if abs(value) < 10_000 else round(value)  # noqa: PLR2004
