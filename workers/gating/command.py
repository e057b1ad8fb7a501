"""`evalbus gate`: the verdict on a closed batch, its figures, and the files that a CI server reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bus.errors import InputError
from bus.nearest import nearest
from bus.port import BatchStatus
from workers.files import check_writable, write_whole
from workers.gating import github, telling
from workers.gating.baseline import beside, own_baseline, results_of
from workers.gating.figures import Figures, figures_of
from workers.gating.groups import Fields, fields_of
from workers.gating.junit import write_junit
from workers.gating.rules import GateRules
from workers.gating.sources import Found
from workers.results.outcome import Outcome, render
from workers.statistics.paired import Paired
from workers.suite import load_suite

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["GateOptions", "Verdict", "as_json", "check_floor", "check_options", "judge", "rules_of", "tell"]


@dataclass(frozen=True, slots=True)
class GateOptions:
    """What the command line was given."""

    rules: Mapping[str, Any] = field(default_factory=dict)
    """Beside those of the suite, and in place of the same ones."""
    suite: Path | None = None
    cluster: str | None = None
    by: Sequence[str] = ()
    ks: Sequence[int] = ()
    power: float = 0.8
    json_file: Path | None = None
    figures_file: Path | None = None
    junit_file: Path | None = None
    freeze_file: Path | None = None
    on_github: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """A batch that was judged; the outcome's gate has the word."""

    found: Found
    figures: Figures | None

    @property
    def outcome(self) -> Outcome:
        """With the rules by which it was judged."""
        return self.found.outcome


def check_options(options: GateOptions) -> None:
    """Before anything is read. Raises InputError."""
    for file in (options.json_file, options.figures_file, options.junit_file, options.freeze_file):
        if file is not None:
            check_writable(file)
    if not 0 < options.power < 1:
        raise InputError(f"--power is {options.power:g}", remedy="a number between 0 and 1, such as 0.8")
    rules = options.rules
    with_another = {"margin": "no_worse_than", "confidence": "no_worse_than", "max_cost": "price"}  # maybe the suite's
    rules_of({}, {name: value for name, value in rules.items() if with_another.get(name, name) in rules})


def judge(found: Found, before: Found | None, options: GateOptions) -> Verdict:
    """Judge a batch by its own rules and those of the options; `before`: the baseline that these name.

    Raises InputError, ViolationError.
    """
    rules = rules_of(found.gate, options.rules)
    outcome = replace(found.outcome, rules=rules)
    has_number = outcome.status is BatchStatus.CLOSED
    if has_number:
        check_floor(options.rules, outcome)
        _check_trials(options.ks, outcome)
    fields = fields_of(found, options.suite) if has_number and (options.cluster or options.by) else None
    clusters = None if fields is None or options.cluster is None else fields.by(options.cluster)
    compared = _compared(found, outcome, before, clusters, options) if has_number else None
    outcome = replace(outcome, compared=compared)
    figures = figures_of(
        outcome,
        clusters=clusters,
        cluster=options.cluster,
        groups=_groups(fields, options.by),
        ks=options.ks,
        compared=compared,
        power=options.power,
    )
    return Verdict(replace(found, outcome=outcome), figures)


def tell(verdict: Verdict, options: GateOptions, console: Console) -> None:
    """Print it, and write the files that were asked for. Raises InputError."""
    outcome, figures = verdict.outcome, verdict.figures
    if options.json_file is not None:
        _write_json(options.json_file, outcome.as_json())
    if options.figures_file is not None:
        _write_json(options.figures_file, as_json(verdict))
    if options.junit_file is not None:
        write_junit(verdict.found, options.junit_file, datetime.now(UTC))
    if options.freeze_file is not None:
        verdict.found.freeze(options.freeze_file)
    with github.commands_stopped() if options.on_github else nullcontext():
        render(outcome, console)
        if figures is not None:
            telling.show(figures, console)
    if options.on_github:
        for line in github.annotated(outcome):
            print(line)
        github.write_summary(github.summary(verdict.found, figures))


def as_json(verdict: Verdict) -> dict[str, Any]:
    """What `--figures` writes."""
    outcome, gate = verdict.outcome, verdict.outcome.gate
    rules = [
        {"rule": one.rule, "measured": one.measured, "bound": one.bound, "verdict": one.verdict, "why": one.why}
        for one in gate.lines
    ]
    told = {} if verdict.figures is None else verdict.figures.as_json()
    return {"batch": outcome.batch, "snapshot_id": outcome.snapshot_id, "word": gate.word.value, "rules": rules, **told}


def _write_json(file: Path, told: Mapping[str, Any]) -> None:
    write_whole(file, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def rules_of(own: Mapping[str, Any], given: Mapping[str, Any]) -> GateRules:
    """The suite's and the command line's together; a floor is added to, all else replaced. Raises InputError."""
    both = {**own, **given}
    if "must_pass" in own and "must_pass" in given:
        both["must_pass"] = [*dict.fromkeys((*own["must_pass"], *given["must_pass"]))]
    try:
        return GateRules.from_mapping(both)
    except InputError as error:
        problem = re.sub(r"gate\.([a-z_]+)", lambda named: _spelt(named[1], given), error.problem)
        raise InputError(problem, remedy=error.remedy) from None


def _spelt(name: str, given: Mapping[str, Any]) -> str:
    return f"--{name.replace('_', '-')}" if name in given else f"gate.{name}"


def check_floor(given: Mapping[str, Any], outcome: Outcome) -> None:
    """A case that was named and is not there cannot pass: it may be misspelt. Raises InputError.

    The suite's own are: a batch of some of its cases may lack one, which is for the gate to say.
    """
    known = outcome.cases
    for name in given.get("must_pass") or ():
        if name not in known:
            near = nearest(name, known)
            remedy = f"did you mean {near!r}?" if near else None
            raise InputError(f"must pass: batch {outcome.batch!r} has no case {name!r}", remedy=remedy)


def _check_trials(ks: Sequence[int], outcome: Outcome) -> None:
    """Of more trials than any case has, nothing is known. Raises InputError."""
    most = max((one.scored for one in results_of(outcome).cases.values()), default=0)
    if ks and max(ks) > most:
        raise InputError(f"--k {max(ks)}: no case of {outcome.batch!r} has more than {most} scored trials")


def _compared(
    found: Found, outcome: Outcome, before: Found | None, clusters: Mapping[str, str] | None, options: GateOptions
) -> Paired | None:
    if before is not None:
        compared = beside(outcome, before.outcome, before.name, clusters)
        if not compared.pairs and not compared.unscored:  # who names one means one of these cases
            raise InputError(f"baseline {before.name} has none of the cases of batch {outcome.batch!r}")
        return compared
    place = found.suite_path
    if options.suite is not None and outcome.rules.no_worse_than is not None:
        suite = load_suite(options.suite, check_code=False)
        place = str(suite.root / suite.source.name)
    named, own = outcome.rules.no_worse_than, own_baseline(outcome, place)
    return None if own is None or named is None else beside(outcome, own, named, clusters)


def _groups(fields: Fields | None, by: Sequence[str]) -> dict[str, dict[str, str]]:
    return {} if fields is None else {name: fields.by(name) for name in by}
