"""Every figure of a closed batch, computed once: the screen, the JSON and the step summary show the same ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workers.gating.baseline import results_of
from workers.results import numbers
from workers.results.numbers import Interval
from workers.results.outcome import Outcome
from workers.statistics.clusters import Cluster, Clustered, clustered
from workers.statistics.paired import Paired
from workers.statistics.results import Results
from workers.statistics.trials import MOST_K, Estimate, over_cases, pass_all, pass_any

__all__ = ["Change", "Comparison", "Figures", "Group", "figures_of"]


@dataclass(frozen=True, slots=True)
class Group:
    """The part of a batch whose cases have one value of a field."""

    name: str
    cases: int
    passed: int
    scored: int
    holes: int
    rate: float | None
    interval: Interval
    """Wilson's."""
    bounds: Interval
    error: float | None
    """Over clusters."""


@dataclass(frozen=True, slots=True)
class Change:
    """A case that passed more often than in the baseline, or less often; both are shares of its trials."""

    case: str
    before: float
    now: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The batch beside its baseline."""

    baseline: str
    cases: int
    difference: float | None
    error: float | None
    interval: Interval | None
    p_value: float
    better: int
    worse: int
    changed: tuple[Change, ...]
    """The worse ones first, the largest change first."""
    detectable: float | None
    bounds: Interval
    unscored: int
    only_here: int
    only_there: int


@dataclass(frozen=True, slots=True)
class Figures:
    """See the module's text. None of a batch that has no number."""

    cases: int
    trials: int
    cluster: str | None
    """The field by whose values runs are clustered; None: the trials of a case are a cluster."""
    error: Clustered
    plain_error: float | None
    """As if every run stood for itself."""
    pass_any: tuple[Estimate, ...]
    pass_all: tuple[Estimate, ...]
    groups: Mapping[str, tuple[Group, ...]]
    """Field to its groups, by name."""
    comparison: Comparison | None
    asked: bool = False
    """Whether somebody named the k of pass@k."""

    def as_json(self) -> dict[str, Any]:
        """Intervals as pairs, as in the JSON of `run` and `gate`."""
        interval = self.error.interval()
        return {
            "cases": self.cases,
            "trials": self.trials,
            "standard_error": {
                "cluster": self.cluster or "case",
                "clusters": self.error.clusters,
                "value": self.error.error,
                "interval": None if interval is None else [interval.low, interval.high],
                "unclustered": self.plain_error,
            },
            "pass_at_k": [asdict(one) for one in self.pass_any],
            "pass_hat_k": [asdict(one) for one in self.pass_all],
            "groups": {field: [_plain(one) for one in groups] for field, groups in self.groups.items()},
            "comparison": None if self.comparison is None else _plain(self.comparison),
        }


def figures_of(
    outcome: Outcome,
    *,
    clusters: Mapping[str, str] | None = None,
    cluster: str | None = None,
    groups: Mapping[str, Mapping[str, str]] | None = None,
    ks: Sequence[int] = (),
    compared: Paired | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
) -> Figures | None:
    """Of a closed batch; None of one without a number.

    `clusters`: case to the value of the field `cluster`. `groups`: field to case to value. `ks`: for pass@k and pass^k;
    those up to the number of trials, and 5, when left out.
    """
    if outcome.pass_rate is None:
        return None
    results = results_of(outcome)
    error = results.clustered(clusters)
    assert error is not None, "a batch with a rate has a scored run"
    asked, ks = bool(ks), ks or range(1, min(results.trials, MOST_K) + 1)
    singles = [Cluster(1, 1)] * results.passed + [Cluster(0, 1)] * (results.scored - results.passed)
    plain = clustered(singles)
    return Figures(
        cases=len(results.cases),
        trials=results.trials,
        cluster=cluster,
        error=error,
        plain_error=None if plain is None else plain.error,
        pass_any=tuple(one for k in ks if (one := over_cases(results, k, pass_any)) is not None),
        pass_all=tuple(one for k in ks if (one := over_cases(results, k, pass_all)) is not None),
        groups={field: _groups(results, values, clusters) for field, values in (groups or {}).items()},
        comparison=None if compared is None else _comparison(compared, power, alpha),
        asked=asked,
    )


def _groups(results: Results, values: Mapping[str, str], clusters: Mapping[str, str] | None) -> tuple[Group, ...]:
    members: dict[str, set[str]] = {}
    for case in results.cases:
        members.setdefault(values[case], set()).add(case)
    made = []
    for name in sorted(members):
        part = results.only(frozenset(members[name]))
        error = part.clustered(clusters)
        made.append(
            Group(
                name=name,
                cases=len(part.cases),
                passed=part.passed,
                scored=part.scored,
                holes=part.holes,
                rate=part.passed / part.scored if part.scored else None,
                interval=numbers.wilson(part.passed, part.scored),
                bounds=numbers.bounds(part.passed, part.scored, part.scored + part.holes),
                error=None if error is None else error.error,
            )
        )
    return tuple(made)


def _comparison(one: Paired, power: float, alpha: float) -> Comparison:
    return Comparison(
        baseline=one.baseline,
        cases=len(one.pairs),
        difference=one.difference,
        error=one.error,
        interval=one.interval(),
        p_value=one.p_value,
        better=one.better,
        worse=one.worse,
        changed=tuple(
            Change(pair.case, pair.before, pair.now)
            for pair in sorted(one.pairs, key=lambda pair: (pair.now > pair.before, -abs(pair.now - pair.before)))
            if pair.now != pair.before
        ),
        detectable=one.detectable(power, alpha),
        bounds=one.bounds,
        unscored=len(one.unscored),
        only_here=len(one.only_here),
        only_there=len(one.only_there),
    )


def _plain(one: Group | Comparison) -> dict[str, Any]:
    told = asdict(one)
    return {
        name: [value["low"], value["high"]] if isinstance(value, dict) and value.keys() == {"low", "high"} else value
        for name, value in told.items()
    }
