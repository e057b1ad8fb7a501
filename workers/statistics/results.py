"""A batch as its cases: the trials of each, what passed, what failed, and what was never scored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bus.types import RunId
from workers.statistics.clusters import Cluster, Clustered, clustered

__all__ = ["CaseResult", "Results", "case_and_trial"]


def case_and_trial(run: str) -> tuple[str, int]:
    """`csv_line#2` is the second trial of `csv_line`; a name without a number is a first trial of its own."""
    case, mark, trial = run.rpartition("#")
    return (case, int(trial)) if mark and trial.isascii() and trial.isdigit() else (run, 1)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The trials of one case."""

    passed: int
    scored: int
    holes: int = 0

    @property
    def rate(self) -> float | None:
        """Of the trials that were scored, the share that passed; None when none was."""
        return self.passed / self.scored if self.scored else None

    @property
    def trials(self) -> int:
        """Scored or not."""
        return self.scored + self.holes


@dataclass(frozen=True, slots=True)
class Results:
    """Every case of a closed batch, sorted by id."""

    cases: Mapping[str, CaseResult]

    @classmethod
    def of(cls, bins: Mapping[RunId, str], holes: Mapping[RunId, str], passing: str) -> Results:
        """`bins`: scored run to its bin; `holes`: the others; `passing`: the bin that passes."""
        found: dict[str, list[int]] = {}
        for run, named in bins.items():
            counts = found.setdefault(case_and_trial(run)[0], [0, 0, 0])
            counts[0] += named == passing
            counts[1] += 1
        for run in holes:
            found.setdefault(case_and_trial(run)[0], [0, 0, 0])[2] += 1
        return cls({case: CaseResult(*found[case]) for case in sorted(found)})

    def clustered(self, clusters: Mapping[str, str] | None = None) -> Clustered | None:
        """The pass rate with its error; `clusters`: case to its cluster, each its own where it is left out."""
        found: dict[str, list[int]] = {}
        for case, one in self.cases.items():
            counts = found.setdefault(case if clusters is None else clusters[case], [0, 0])
            counts[0] += one.passed
            counts[1] += one.scored
        return clustered(Cluster(passed, scored) for passed, scored in found.values())

    def only(self, cases: frozenset[str]) -> Results:
        """Those of the given cases."""
        return Results({case: one for case, one in self.cases.items() if case in cases})

    @property
    def passed(self) -> int:
        """Runs."""
        return sum(one.passed for one in self.cases.values())

    @property
    def scored(self) -> int:
        """Runs."""
        return sum(one.scored for one in self.cases.values())

    @property
    def holes(self) -> int:
        """Runs."""
        return sum(one.holes for one in self.cases.values())

    @property
    def trials(self) -> int:
        """Of the case that has most."""
        return max((one.trials for one in self.cases.values()), default=0)
