"""How often a gate would say something else of the same candidate: what an A/A test measures, and what theory expects.

A gate that flips when nothing has changed teaches its readers to press "run again".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from workers.results.numbers import Interval, wilson
from workers.statistics.results import Results

__all__ = ["Flips", "Noise", "alarms", "flips", "noise"]

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Flips:
    """A rule over repeats of one candidate, or over pairs of them."""

    said: int
    """How often it was met, or, for a comparison, how often it was not."""
    of: int
    share: float
    """Of two repeats: the chance that they differ. For a comparison: that it says "worse" of the same."""
    interval: Interval
    """95%."""
    expected: float | None
    """By theory, from how the trials of a case vary; None where there is none for the rule."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What repeats of one candidate over the same cases differ by, by chance alone."""

    rate: float
    spread: float
    """The standard deviation of one repeat's pass rate."""
    runs: int
    """Of one repeat."""

    def meets(self, least: float) -> float:
        """The chance that a repeat has `pass_rate >= least`: normal, corrected for continuity."""
        wanted = math.ceil(least * self.runs - 1e-9)
        return self._above((wanted - 0.5) / self.runs - self.rate, self.spread)

    def alarm(self, margin: float) -> float:
        """The chance that a repeat is below another one by more than `margin`."""
        # Differences come in steps of one run: beyond the margin begins at the next one.
        beyond = (math.floor(margin * self.runs + 1e-9) + 0.5) / self.runs
        return self._above(beyond, self.spread * math.sqrt(2))

    def margin(self, alarm: float) -> float:
        """The smallest margin that says "worse" of the same at most so often."""
        return max(0.0, _NORMAL.inv_cdf(1 - alarm) * self.spread * math.sqrt(2))

    @staticmethod
    def _above(distance: float, spread: float) -> float:
        if spread == 0:
            return 1.0 if distance <= 0 else 0.0
        return 1 - _NORMAL.cdf(distance / spread)


def noise(repeats: Sequence[Results]) -> Noise:
    """From at least two repeats. Each case's own variance, without bias: m/(m-1) p (1-p) over its m scored trials.

    The cases stay the same, so what is between them is not in it; with p (1-p) of the whole batch a gate would seem to
    flip far more often than it does.
    """
    cases = {case for one in repeats for case in one.cases}
    variance = 0.0
    for case in cases:
        found = [one.cases[case] for one in repeats if case in one.cases]
        scored, passed = sum(one.scored for one in found), sum(one.passed for one in found)
        if scored > 1:
            rate = passed / scored
            variance += scored / (scored - 1) * rate * (1 - rate) * scored / len(repeats)
    runs = fmean(one.scored for one in repeats)
    rate = sum(one.passed for one in repeats) / max(1, sum(one.scored for one in repeats))
    return Noise(rate, math.sqrt(variance) / runs if runs else 0.0, round(runs))


def flips(met: Sequence[bool], expected: float | None) -> Flips:
    """Whether a rule was met, repeat by repeat. `expected`: the chance of that by theory.

    The share is over all pairs, 2 g (n-g) / (n (n-1)), which is without bias. Its interval is Wilson's of the chance to
    meet the rule, carried through 2 q (1-q).
    """
    good, many = sum(met), len(met)
    low, high = (interval := wilson(good, many)).low, interval.high
    ends = sorted((2 * low * (1 - low), 2 * high * (1 - high)))
    if low <= 0.5 <= high:  # noqa: PLR2004 - where it is largest
        ends[1] = 0.5
    theory = None if expected is None else 2 * expected * (1 - expected)
    return Flips(good, many, 2 * good * (many - good) / (many * (many - 1)), Interval(ends[0], ends[1]), theory)


def alarms(differences: Sequence[float], repeats: int, margin: float, expected: float | None) -> Flips:
    """Differences of all ordered pairs of repeats, against `no_worse_than` with this margin.

    n repeats make n (n-1) pairs, and only n/2 independent ones: the interval is Wilson's for so many.
    """
    said = sum(one < -margin - 1e-9 for one in differences)
    share = said / len(differences)
    independent = max(1, repeats // 2)
    return Flips(said, len(differences), share, _interval(share, independent), expected)


def _interval(share: float, many: int) -> Interval:
    """Wilson's, for a share that need not be a whole number of `many`: between those of its neighbours."""
    below, above = math.floor(share * many), math.ceil(share * many)
    return Interval(wilson(below, many).low, wilson(above, many).high)
