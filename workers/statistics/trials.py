"""Several trials of a case: whether any of k would pass, and whether all of k would.

Both are estimated from the n trials that were scored, c of which passed, over all ways to draw k of them. Taking the
first k, or powers of c / n, is biased.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import TypeAlias

from workers.statistics.clusters import Cluster, clustered
from workers.statistics.results import Results

__all__ = ["MOST_K", "Estimate", "Estimator", "over_cases", "pass_all", "pass_any"]

MOST_K = 5
"""pass@k is shown for each k up to so many trials; others are asked for."""

Estimator: TypeAlias = Callable[[int, int, int], float]


def pass_any(scored: int, passed: int, k: int) -> float:
    """pass@k, the chance that at least one of k trials passes: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, equation 1).

    Raises ValueError for more than were scored.
    """
    _check(scored, passed, k)
    return 1.0 - comb(scored - passed, k) / comb(scored, k)


def pass_all(scored: int, passed: int, k: int) -> float:
    """pass^k, the chance that all of k trials pass: C(c, k) / C(n, k) (Yao et al. 2024). Raises ValueError."""
    _check(scored, passed, k)
    return comb(passed, k) / comb(scored, k)


def _check(scored: int, passed: int, k: int) -> None:
    if not 0 <= passed <= scored or not 1 <= k <= scored:
        raise ValueError(f"{k} of {scored} trials, {passed} of which passed, is not possible")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over cases, its standard error over cases, and how many of them had k scored trials."""

    k: int
    value: float
    error: float | None
    cases: int


def over_cases(results: Results, k: int, estimator: Estimator) -> Estimate | None:
    """Over the cases with at least k scored trials; None when there are none."""
    found = clustered(
        Cluster(estimator(one.scored, one.passed, k), 1) for one in results.cases.values() if one.scored >= k
    )
    return None if found is None else Estimate(k, found.mean, found.error, found.clusters)
