"""What a design can tell before it is paid for: the power of a comparison, the smallest difference it finds, its size.

Two candidates answer the same cases, some trials each. `correlation` is how alike two trials of one case come out, by
the same candidate or by both: the share of the variance that is the case's own. That cancels in the difference of a
case with itself, so 0 is the cautious assumption for a comparison.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

__all__ = ["Design", "chance_no_worse", "chance_to_pass"]

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Design:
    """`cases` * `trials` runs of each candidate; a two-sided test at `alpha`."""

    cases: int
    trials: int = 1
    correlation: float = 0.0
    alpha: float = 0.05

    def power(self, rate: float, other: float) -> float:
        """The chance that a difference between these true rates is found, d = rate - other.

        normal( (|d| sqrt(n) - z sqrt(v + d^2)) / sqrt(v) ), n cases, v the variance of a case's difference. It
        is Connor's of 1987 for McNemar's test, where v + d^2 is the share of discordant pairs. The far tail, a
        difference found the wrong way round, is left out.
        """
        variance, shift = self._variance(rate, other), abs(rate - other)
        ahead = shift * math.sqrt(self.cases) - self._z * math.sqrt(variance + shift**2)
        if variance == 0:
            return 1.0 if ahead > 0 else 0.0
        return _NORMAL.cdf(ahead / math.sqrt(variance))

    def drop(self, rate: float, power: float) -> float | None:
        """The smallest drop from `rate` that is found with this power; None when not even a drop to 0 is."""
        if rate == 0 or self.power(rate, 0.0) < power:
            return None
        from scipy.optimize import brentq  # noqa: PLC0415 - see the package's text

        return rate - float(brentq(lambda other: self.power(rate, other) - power, 0.0, rate))

    def cases_for(self, rate: float, other: float, power: float) -> int:
        """Cases that it takes to find this difference with this power."""
        variance, shift = self._variance(rate, other), abs(rate - other)
        wide = self._z * math.sqrt(variance + shift**2) + _NORMAL.inv_cdf(power) * math.sqrt(variance)
        return max(1, math.ceil((wide / shift) ** 2 - 1e-9))

    def spread(self, rate: float, other: float) -> float:
        """The standard deviation of the difference of two batches with these true rates."""
        return math.sqrt(self._variance(rate, other) / self.cases)

    @property
    def _z(self) -> float:
        return _NORMAL.inv_cdf(1 - self.alpha / 2)

    def _variance(self, rate: float, other: float) -> float:
        """Of one case's difference, over its trials.

        Two rates that differ leave pairs that do, however alike the candidates are (Frechet's bound of a covariance);
        and trials cannot average away what only some cases have, so it is never less than if the difference came from
        cases that always pass with one candidate and always fail with the other.
        """
        one, two, shift = rate * (1 - rate), other * (1 - other), abs(rate - other)
        together = min(self.correlation * math.sqrt(one * two), min(rate, other) - rate * other)
        return max((one + two - 2 * together) / self.trials, shift - shift**2, 0.0)


def chance_to_pass(rate: float, least: float, cases: int, trials: int = 1, correlation: float = 0.0) -> float:
    """The chance that a candidate of this true rate passes `pass_rate >= least`, were the cases drawn anew.

    With one trial, or trials that have nothing in common, exactly by the binomial distribution; else by the normal one
    with the variance of cluster sampling, p q (r + (1-r) / k) / n (Kish 1965), and a correction for continuity.
    """
    runs = cases * trials
    # The smallest count that meets the rule as the gate compares it.
    wanted = next(count for count in range(max(0, math.floor(least * runs) - 1), runs + 2) if count / runs >= least)
    if trials == 1 or correlation == 0:
        from scipy.stats import binom  # noqa: PLC0415 - see the package's text

        return float(binom.sf(wanted - 1, runs, rate))
    spread = math.sqrt(rate * (1 - rate) * (correlation + (1 - correlation) / trials) / cases)
    short = (wanted - 0.5) / runs - rate
    return (1.0 if short <= 0 else 0.0) if spread == 0 else 1 - _NORMAL.cdf(short / spread)


def chance_no_worse(shift: float, error: float, cases: int, margin: float, confidence: float | None) -> float:
    """The chance that a rule `no_worse_than` is met: `shift` is the true difference, `error` its standard error.

    Differences are taken for normal. With a `confidence` it is the lower bound that has to be within the margin, and in
    that are the two cases more of `workers.statistics.paired.Paired.lower`.
    """
    needed = -margin
    if confidence is not None:
        # (n d - z sqrt(n v + 2)) / (n + 2) >= -margin, solved for d; n v = (n * error)^2
        wide = _NORMAL.inv_cdf(confidence) * math.sqrt((cases * error) ** 2 + 2)
        needed = (wide - margin * (cases + 2)) / cases
    if error == 0:
        return float(shift >= needed)
    return _NORMAL.cdf((shift - needed) / error)
