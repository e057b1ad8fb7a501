"""`evalbus calibrate`: the same candidate against itself, and how often the gate says something else of it.

Whatever differs between repeats of one candidate is chance. A gate whose word differs has a rule that is too near to
the rate, a margin that is too narrow, or too few runs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bus.errors import InputError
from bus.port import BatchStatus
from workers.gating.baseline import own_baseline, results_of
from workers.gating.command import check_floor, rules_of
from workers.gating.rules import GateRules
from workers.gating.sources import Found
from workers.gating.visible import visible
from workers.job import run_job
from workers.job_options import JobOptions
from workers.processes.interrupt import Interrupted
from workers.results.columns import columns
from workers.results.outcome import Outcome
from workers.statistics.flips import Flips, Noise, alarms, flips, noise
from workers.statistics.paired import Paired, paired
from workers.statistics.power import chance_no_worse
from workers.statistics.results import Results
from workers.statistics.trials import pass_all

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Calibration", "calibrated", "repeat", "show"]

_LABEL = 11
_SUGGESTED = 0.05  # how often a margin may say "worse" of the same; the usual level
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Calibration:
    """What repeats of one candidate came to."""

    batches: tuple[str, ...]
    rates: tuple[float, ...]
    words: Mapping[str, int]
    """Of the gate, each with how many repeats had it."""
    gate: Flips | None
    """Of the word as a whole; None where no gate is set, or where one of them has no verdict."""
    rules: Mapping[str, Flips]
    noise: Noise
    margin: float | None
    alarm: Flips | None
    """Each repeat with each other as its baseline, at that margin."""
    without: tuple[str, ...]
    """Batches that had no number; they are in no figure."""

    @property
    def suggested(self) -> float:
        """The margin by which one in twenty comparisons with itself would be `worse`."""
        return self.noise.margin(_SUGGESTED)

    def as_json(self) -> dict[str, Any]:
        """What `--json` writes."""
        return {
            "batches": list(self.batches),
            "without": list(self.without),
            "rates": list(self.rates),
            "words": dict(self.words),
            "gate": None if self.gate is None else _plain(self.gate),
            "rules": {name: _plain(one) for name, one in self.rules.items()},
            "rate": self.noise.rate,
            "spread": self.noise.spread,
            "margin": self.margin,
            "alarm": None if self.alarm is None else _plain(self.alarm),
            "suggested_margin": self.suggested,
        }


def repeat(options: JobOptions, prefix: str | None, repeats: int, name: str) -> list[str]:
    """Run a suite so often, one batch after the other; answers their names. `name`: the suite's.

    Raises EvalbusError; Interrupted, with the command that goes on.
    """
    prefix = prefix or f"{name}-aa-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    names = [f"{prefix}.{number}" for number in range(1, repeats + 1)]
    for one in names:
        try:
            run_job(replace(options, batch=one))
        except Interrupted as stop:
            again = f"evalbus calibrate {options.suite} --repeats {repeats} --batch {prefix}"
            raise Interrupted(f"interrupted; go on with: {again}") from stop
    return names


def calibrated(found: Sequence[Found], given: Mapping[str, Any]) -> Calibration:
    """`given`: rules beside those that the batches declared. Raises InputError for batches that are not repeats."""
    _check_same(found)
    closed = [one for one in found if one.outcome.status is BatchStatus.CLOSED]
    if len(closed) < _FEWEST:
        raise InputError(f"{len(closed)} of {len(found)} batches closed: two are needed to compare")
    margin = given.get("margin")
    asked = {key: value for key, value in given.items() if key != "margin"}
    rules = rules_of(closed[0].gate, asked)
    check_floor(given, closed[0].outcome)
    if margin is None:
        margin = rules.margin if rules.margin is not None else 0.0 if rules.no_worse_than is not None else None
    results = [results_of(one.outcome) for one in closed]
    around = noise(results)
    verdicts = [_judged(one, rules) for one in closed]
    decided = all(one.passed is not None for one in verdicts)
    by_rule: dict[str, list[bool]] = {}
    for one in verdicts:
        for line in one.lines:
            if line.met is not None:
                by_rule.setdefault(f"{line.rule} {line.bound}", []).append(line.met)
    theory = _theory(rules, around, results)
    differences = _differences(results, rules.confidence) if margin is not None else []
    return Calibration(
        batches=tuple(one.name for one in closed),
        rates=tuple(one.outcome.pass_rate or 0.0 for one in closed),
        words=Counter(one.word.value for one in verdicts),
        gate=flips([one.passed for one in verdicts if one.passed is not None], None) if decided else None,
        rules={name: flips(met, theory.get(name)) for name, met in by_rule.items() if len(met) == len(closed)},
        noise=around,
        margin=margin,
        alarm=None
        if margin is None or not differences
        else alarms(differences, len(closed), margin, _alarm(around, len(results[0].cases), margin, rules.confidence)),
        without=tuple(one.name for one in found if one not in closed),
    )


def _check_same(found: Sequence[Found]) -> None:
    """Another suite, candidate, judge or set of cases makes it a comparison, another question. Raises InputError."""
    first = found[0]
    if len({one.name for one in found}) < len(found):
        raise InputError("a batch is named twice: it does not differ from itself")
    known: dict[tuple[str, str, str | None], str] = {}
    for one in found:
        named = known.setdefault((one.outcome.plane, one.outcome.batch, one.outcome.snapshot_id), one.name)
        if named != one.name and one.outcome.snapshot_id is not None:
            raise InputError(f"{one.name} and {named} are the same batch: it does not differ from itself")
    for one in found[1:]:
        for what in ("suite_digest", "candidate", "judge"):
            here, there = getattr(one, what), getattr(first, what)
            if here and there and here != there:
                named = what.replace("_", " ")
                raise InputError(
                    f"{one.name} and {first.name} are not repeats of each other: their {named} differs",
                    remedy=f"to compare them: evalbus gate {one.name} --no-worse-than {first.name}",
                )
        if not _of_the_same_cases(one.outcome, first.outcome):
            raise InputError(
                f"{one.name} and {first.name} are not repeats of each other: their cases differ, "
                f"{one.outcome.size} and {first.outcome.size}"
            )


def _of_the_same_cases(one: Outcome, other: Outcome) -> bool:
    """Of one that is open no more is known than how many runs it is to have."""
    if not (one.status.ended and other.status.ended):
        return one.intended == other.intended
    return one.runs.keys() | one.hole_runs.keys() == other.runs.keys() | other.hole_runs.keys()


def _judged(one: Found, rules: GateRules) -> Any:  # noqa: ANN401 - the verdict
    outcome = replace(one.outcome, rules=rules)
    before = own_baseline(outcome, one.suite_path)
    compared = None
    if before is not None:
        compared = paired(results_of(outcome), results_of(before), rules.no_worse_than or "")
    return replace(outcome, compared=compared).gate


def _theory(rules: GateRules, around: Noise, results: Sequence[Results]) -> dict[str, float]:
    """The chance that a repeat meets a rule, for those of which there is one."""
    found = {}
    if rules.min_pass_rate is not None:
        found[f"pass_rate >= {rules.min_pass_rate}"] = around.meets(rules.min_pass_rate)
    if rules.must_pass:
        found[f"must_pass all {len(set(rules.must_pass))}"] = math.prod(_all(name, results) for name in rules.must_pass)
    return found


def _all(case: str, results: Sequence[Results]) -> float:
    """The chance that every trial of a case passes, over all trials of all repeats."""
    found = [one.cases[case] for one in results if case in one.cases]
    scored, passed = sum(one.scored for one in found), sum(one.passed for one in found)
    trials = max((one.trials for one in found), default=0)
    return pass_all(scored, passed, trials) if 0 < trials <= scored else 0.0


def _differences(results: Sequence[Results], confidence: float | None) -> list[float]:
    """Of all ordered pairs: the difference, or its lower bound, as the gate would compare it."""

    def measured(one: Paired) -> float | None:
        return one.difference if confidence is None else one.lower(confidence)

    found = [measured(paired(now, before, "")) for now, before in permutations(results, 2)]
    return [one for one in found if one is not None]


def _alarm(around: Noise, cases: int, margin: float, confidence: float | None) -> float:
    if confidence is None:
        return around.alarm(margin)
    return 1 - chance_no_worse(0.0, around.spread * math.sqrt(2), cases, margin, confidence)


def _plain(one: Flips) -> dict[str, Any]:
    return {**asdict(one), "interval": [one.interval.low, one.interval.high]}


def show(found: Calibration, console: Console) -> None:
    """Print it."""
    for line in _lines(found):
        console.print(line, soft_wrap=True, markup=False)


def _lines(found: Calibration) -> list[str]:
    def line(label: str, text: str) -> str:
        return f"{label:<{_LABEL}}{visible(text)}"

    low, high, around = min(found.rates), max(found.rates), found.noise
    words = " · ".join(f"{word} {count}" for word, count in sorted(found.words.items()))
    lines = [
        line("repeats", f"{len(found.batches)} batches of one candidate, {around.runs} scored runs each"),
        line("pass rate", f"{around.rate:.4f}   {low:.4f} to {high:.4f}, standard deviation {around.spread:.4f}"),
        line("gate", words),
    ]
    if found.without:
        lines.append(line("", f"without a number, and in no figure: {', '.join(found.without)}"))
    rows = [["", "met", "flips", "95%", "expected"]]
    if found.gate is not None:
        rows.append(["gate, as a whole", *_cells(found.gate)])
    rows += [[visible(name), *_cells(one)] for name, one in found.rules.items()]
    if len(rows) > 1:
        lines += ["flips, of two repeats:", *(f"  {row}" for row in columns(rows, range(1, len(rows[0]))))]
    if found.alarm is not None and found.margin is not None:
        one = found.alarm
        expected = "" if one.expected is None else f", expected {one.expected:.4f}"
        shown = f"{one.share:.4f}   {one.said} of {one.of} pairs, {one.interval.low:.4f} to {one.interval.high:.4f}"
        lines.append(line("worse", f"{shown}{expected}   than itself by more than {found.margin:g}"))
    lines.append(line("margin", f"{found.suggested:.4f} would say that of one pair in twenty"))
    return lines


def _cells(one: Flips) -> list[str]:
    expected = "none" if one.expected is None else f"{one.expected:.4f}"
    return [
        f"{one.said} of {one.of}",
        f"{one.share:.4f}",
        f"{one.interval.low:.4f} to {one.interval.high:.4f}",
        expected,
    ]


def check_targets(targets: Sequence[str], repeats: int | None) -> Path | None:
    """What is named: a suite to be repeated, or batches that are there (None). Raises InputError."""
    if repeats is not None:
        if len(targets) != 1:
            raise InputError(f"{len(targets)} were named, and --repeats is about one suite")
        return Path(targets[0])
    if len(targets) < _FEWEST:
        remedy = "name two or more batches of one candidate, or a suite with --repeats N"
        raise InputError("one batch differs from nothing", remedy=remedy)
    return None
