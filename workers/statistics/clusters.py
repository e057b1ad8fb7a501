"""The standard error of a rate whose runs hang together: trials of a case, questions about one text.

Runs of one cluster tend to pass or fail together, so they tell less than as many independent ones. An error that does
not know of it is too small, often by half.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from workers.results.numbers import Interval

__all__ = ["Cluster", "Clustered", "alikeness", "clustered"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The sum of what was measured in a cluster, and how many were: for a rate, passed and scored runs."""

    total: float
    count: int


@dataclass(frozen=True, slots=True)
class Clustered:
    """A mean over all, and its error over `clusters`."""

    mean: float
    error: float | None
    """None below two clusters: nothing is known of how they differ."""
    clusters: int

    def interval(self, confidence: float = 0.95) -> Interval | None:
        """Mean +- t * error with `clusters - 1` degrees of freedom, cut off at 0 and 1; None where the error is."""
        if self.error is None:
            return None
        from scipy.special import stdtrit  # noqa: PLC0415 - see the package's text

        half = float(stdtrit(self.clusters - 1, 0.5 + confidence / 2)) * self.error
        return Interval(max(0.0, self.mean - half), min(1.0, self.mean + half))


def clustered(clusters: Iterable[Cluster]) -> Clustered | None:
    """The cluster-robust error of a mean (Liang and Zeger 1986; Miller 2024, section 2.2); None without a run.

    sqrt( G / (G - 1) * Σ over clusters (total - count * mean)² ) / n

    G / (G - 1) is what statsmodels and Inspect multiply with too: with a cluster for each run this is the usual
    standard error, s / sqrt(n).
    """
    found = [one for one in clusters if one.count]
    count = sum(one.count for one in found)
    if not count:
        return None
    mean = math.fsum(one.total for one in found) / count
    many = len(found)
    if many < 2:  # noqa: PLR2004
        return Clustered(mean, None, many)
    square = math.fsum((one.total - one.count * mean) ** 2 for one in found)
    return Clustered(mean, math.sqrt(many / (many - 1) * square) / count, many)


def alikeness(clusters: Iterable[Cluster]) -> float | None:
    """The intraclass correlation of passes and fails: what of their variance is between clusters, in [0, 1].

    The estimator of the analysis of variance (Donner 1986): (F - 1) / (F + n - 1), n the size of a cluster, adjusted
    where sizes differ. None where no cluster has two, or there are not two clusters.
    """
    found = [one for one in clusters if one.count]
    many, count = len(found), sum(one.count for one in found)
    if many < 2 or count == many:  # noqa: PLR2004
        return None
    mean = math.fsum(one.total for one in found) / count
    between = math.fsum(one.count * (one.total / one.count - mean) ** 2 for one in found) / (many - 1)
    within = math.fsum(one.total * (1 - one.total / one.count) for one in found) / (count - many)
    size = (count - sum(one.count**2 for one in found) / count) / (many - 1)
    spread = between + (size - 1) * within
    return max(0.0, (between - within) / spread) if spread else None
