"""A batch beside its baseline, case by case.

Two rates over the same cases share what is hard about the cases. The difference of a case with itself does not have
that in it, so it is known far better than the difference of two rates that were measured apart (Miller 2024, 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

from workers.results.numbers import Interval
from workers.statistics.clusters import Cluster, Clustered, clustered
from workers.statistics.results import CaseResult, Results

__all__ = ["Pair", "Paired", "paired"]

SEED = 20_210_707
"""Of the resampling: the same batches give the same bounds, whoever asks."""
RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Pair:
    """A case that is scored in both."""

    case: str
    cluster: str
    before: float
    """Share of its trials that passed in the baseline."""
    now: float


@dataclass(frozen=True)
class Paired:
    """The cases of a batch and of its baseline, beside each other."""

    baseline: str
    """How messages name it."""
    pairs: tuple[Pair, ...]
    bounds: Interval
    """The difference over the cases of both, had all holes here failed and all there passed; and the reverse."""
    only_here: tuple[str, ...]
    """Cases that the baseline does not have."""
    only_there: tuple[str, ...]
    unscored: tuple[str, ...]
    """Cases of both without a score in one of them: they are in the bounds, and in no other figure."""

    @property
    def difference(self) -> float | None:
        """The mean over cases of the difference of their pass rates; None where no case is scored in both."""
        found = self._clustered
        return None if found is None else found.mean

    @property
    def covers(self) -> str:
        """` over 5 of 10 cases`, where the baseline lacks some; else empty."""
        of = len(self.pairs) + len(self.unscored) + len(self.only_here)
        return f" over {len(self.pairs)} of {of} cases" if self.only_here else ""

    @property
    def error(self) -> float | None:
        """The standard error of the difference, over clusters; None below two of them."""
        found = self._clustered
        return None if found is None else found.error

    @property
    def better(self) -> int:
        """Cases that passed more often than in the baseline."""
        return sum(one.now > one.before for one in self.pairs)

    @property
    def worse(self) -> int:
        """Cases that passed less often."""
        return sum(one.now < one.before for one in self.pairs)

    @property
    def p_value(self) -> float:
        """McNemar's exact test, two-sided: were better and worse equally likely, how likely is what is at least so odd.

        McNemar 1947; the binomial form is Mosteller 1952. With several trials a case, the sign test over the cases.
        """
        from scipy.stats import binomtest  # noqa: PLC0415 - see the package's text

        changed = self.better + self.worse
        return float(binomtest(self.better, changed).pvalue) if changed else 1.0

    def interval(self, confidence: float = 0.95) -> Interval | None:
        """Two-sided, by the paired bootstrap over clusters (Efron's percentiles); None where there is no difference."""
        drawn = self._quantiles(0.5 - confidence / 2, 0.5 + confidence / 2)
        return None if drawn is None else Interval(drawn[0], drawn[1])

    def lower(self, confidence: float) -> float | None:
        """The one-sided lower bound: m - z * error, of the clusters and two more, one all better and one all worse.

        It is Bonett and Price's of 2012 where a case is a cluster with one trial. Clusters that did not change vary by
        nothing, whether they are resampled or not, and three of them would prove any margin; among many, two are lost.
        """
        if not self.pairs:
            return None
        size = max(1, round(len(self.pairs) / len(self.clusters)))
        found = clustered((*self.clusters, Cluster(size, size), Cluster(-size, size)))
        assert found is not None
        assert found.error is not None, "there are three clusters at least"
        return found.mean - NormalDist().inv_cdf(confidence) * found.error

    def detectable(self, power: float = 0.8, alpha: float = 0.05) -> float | None:
        """The smallest true difference that a two-sided test at `alpha` would find with this power.

        (z of 1 - alpha/2 + z of the power) * error, the one that was measured (Miller 2024, section 5; Cohen 1988).
        """
        if not self.error:  # where nothing changed, nothing is known of how much would
            return None
        normal = NormalDist()
        return (normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)) * self.error

    @cached_property
    def clusters(self) -> tuple[Cluster, ...]:
        """Differences, summed by cluster."""
        found: dict[str, list[float]] = {}
        for one in self.pairs:
            found.setdefault(one.cluster, []).append(one.now - one.before)
        return tuple(Cluster(math.fsum(found[name]), len(found[name])) for name in sorted(found))

    @cached_property
    def _clustered(self) -> Clustered | None:
        return clustered(self.clusters)

    def _quantiles(self, *at: float) -> list[float] | None:
        """Of the difference, over resampled clusters.

        Clusters with the same sum and count are the same to a resample, so it is drawn how often each kind comes: three
        kinds, however many cases, where a case is a cluster with one trial.
        """
        if not self.pairs:
            return None
        import numpy as np  # noqa: PLC0415 - see the package's text

        kinds: dict[tuple[float, int], int] = {}
        for one in self.clusters:
            kind = (round(one.total, 12), one.count)
            kinds[kind] = kinds.get(kind, 0) + 1
        many = sum(kinds.values())
        totals, counts = np.array([kind[0] for kind in kinds]), np.array([kind[1] for kind in kinds])
        shares = np.array([count / many for count in kinds.values()])
        random = np.random.default_rng(SEED)
        piece = max(1, 10_000_000 // len(kinds))  # resamples at once: eighty megabytes at most
        drawn = []
        for start in range(0, RESAMPLES, piece):
            times = random.multinomial(many, shares, size=min(piece, RESAMPLES - start))
            drawn.append((times @ totals) / (times @ counts))
        return [float(value) for value in np.quantile(np.concatenate(drawn), at)]


def paired(now: Results, before: Results, baseline: str, clusters: Mapping[str, str] | None = None) -> Paired:
    """Pair a batch with its baseline; `clusters`: case to its cluster, each case its own where it is left out."""
    both = [case for case in now.cases if case in before.cases]
    pairs, unscored, low, high = [], [], [], []
    for case in both:
        here, there = now.cases[case], before.cases[case]
        low.append(_least(here) - _most(there))
        high.append(_most(here) - _least(there))
        if here.rate is None or there.rate is None:
            unscored.append(case)
        else:
            pairs.append(Pair(case, case if clusters is None else clusters[case], there.rate, here.rate))
    return Paired(
        baseline=baseline,
        pairs=tuple(pairs),
        bounds=Interval(math.fsum(low) / len(both), math.fsum(high) / len(both)) if both else Interval(-1.0, 1.0),
        only_here=tuple(case for case in now.cases if case not in before.cases),
        only_there=tuple(case for case in before.cases if case not in now.cases),
        unscored=tuple(unscored),
    )


def _least(one: CaseResult) -> float:
    return one.passed / one.trials


def _most(one: CaseResult) -> float:
    return (one.passed + one.holes) / one.trials
