"""The baseline of a batch: another closed one, compared case by case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bus.errors import InputError
from bus.port import BatchStatus
from workers.gating.snapshot_file import frozen
from workers.results.outcome import Outcome
from workers.statistics.paired import Paired, paired
from workers.statistics.results import Results

__all__ = ["beside", "own_baseline", "results_of", "with_own_baseline"]


def results_of(outcome: Outcome) -> Results:
    """The cases of a batch that has ended."""
    return Results.of(outcome.runs, outcome.hole_runs, next(iter(outcome.bins)))


def beside(outcome: Outcome, before: Outcome, name: str, clusters: Mapping[str, str] | None = None) -> Paired:
    """Compare. Raises InputError for a baseline that has not closed.

    One that has none of the cases compares with nothing: the suite's own may not have what a batch of a few cases has.
    """
    if before.status is not BatchStatus.CLOSED:
        raise InputError(f"baseline {name} is {before.state}: it has no number to be compared with")
    return paired(results_of(outcome), results_of(before), name, clusters)


def own_baseline(outcome: Outcome, suite_path: str) -> Outcome | None:
    """The baseline that the suite of a batch names, where the suite is on this machine; `suite_path`: its file.

    Raises InputError, ViolationError for a baseline that is none.
    """
    named = outcome.rules.no_worse_than
    if named is None or not suite_path:
        return None
    root = Path(suite_path).parent
    file = root / named
    try:
        if not file.resolve().is_relative_to(root.resolve()):
            return None
        data = file.read_bytes()
    except (OSError, RuntimeError):
        return None
    return frozen(data, str(file)).outcome


def with_own_baseline(outcome: Outcome, suite_path: str) -> Outcome:
    """A closed batch beside its suite's baseline; as it was where that is not on this machine."""
    before = own_baseline(outcome, suite_path) if outcome.status is BatchStatus.CLOSED else None
    named = outcome.rules.no_worse_than
    return outcome if before is None or named is None else replace(outcome, compared=beside(outcome, before, named))
