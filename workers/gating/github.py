"""The gate on GitHub Actions: annotations beside the job, a page of its own in the summary.

A runner obeys lines of a job's output that look like commands (`::error::…`), and what a batch prints has somebody
else's text in it. So the screen is printed between `::stop-commands::` and a word that nobody could have guessed; after
it come the commands, with nothing in them but what `visible` lets through.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bus.errors import InputError
from bus.types import RunId
from workers.brief import brief
from workers.gating.figures import Figures, Group
from workers.gating.gate import GateVerdict, GateWord
from workers.gating.sources import Found
from workers.gating.telling import group_rows, lines_of, share
from workers.gating.visible import markdown, property_of, said
from workers.results.outcome import Outcome
from workers.statistics.results import case_and_trial

__all__ = ["annotated", "commands_stopped", "is_on_github", "summary", "write_summary"]

_RUNS = 50  # named in the summary, of which a step may write 1 MiB; all are in the JUnit file
_GROUPS = 100
_CELL = 200  # characters of an answer, or of a target
_WORDS = 1_000  # characters of one annotation that people still read


def is_on_github() -> bool:
    """Whether this is a step of a workflow."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


@contextlib.contextmanager
def commands_stopped() -> Iterator[None]:
    """Between the two lines a runner takes nothing for a command."""
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", flush=True)
    try:
        yield
    finally:
        sys.stdout.flush()
        print(f"::{word}::", flush=True)


def annotated(outcome: Outcome) -> list[str]:
    """Workflow commands: an error for each rule that is not met, a warning for holes, else a notice with the number.

    GitHub shows ten of a kind for a step; these are fewer.
    """
    gate, batch = outcome.gate, outcome.batch
    found = []
    if gate.word in (GateWord.FAILED, GateWord.UNDECIDED):
        found += [_command("error", f"evalbus gate {gate.word.value}", f"{batch}: {why}") for why in gate.why]
    elif outcome.pass_rate is not None:
        scored = f"{outcome.passed} of {outcome.accepted} scored runs passed, {outcome.pass_rate:.4f}"
        scored += "" if outcome.first_of is None else f" ({outcome.size})"
        found.append(_command("notice", f"evalbus gate {gate.word.value}", f"{batch}: {scored}"))
    if outcome.holes:
        holes = ", ".join(f"{why} {count}" for why, count in outcome.holes.items())
        found.append(_command("warning", "evalbus: runs without a score", f"{batch}: {holes}"))
    return found


def _command(kind: str, title: str, message: str) -> str:
    return f"::{kind} title={property_of(title)}::{said(message[:_WORDS])}"


def write_summary(text: str) -> None:
    """Append to the step's summary, where the runner named a file for it. Raises InputError."""
    named = os.environ.get("GITHUB_STEP_SUMMARY")
    if not named:
        return
    try:
        with Path(named).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"GITHUB_STEP_SUMMARY cannot be written: {error.strerror}", file=named) from error


def summary(found: Found, figures: Figures | None) -> str:
    """The batch and its gate in Markdown."""
    outcome, gate = found.outcome, found.outcome.gate
    batch = f"Batch {markdown(outcome.batch)}, {outcome.state}, {outcome.size}."
    lines = [f"## evalbus gate: {gate.word.value}", "", batch, ""]
    lines += _rules(gate)
    lines += _number(outcome, figures)
    if figures is not None:
        for field, groups in figures.groups.items():
            lines += _groups(field, groups)
        lines += _changed(figures)
    lines += _missed(found)
    return "\n".join(lines) + "\n"


def _rules(gate: GateVerdict) -> list[str]:
    if not gate.lines:
        return [*(f"- {markdown(why)}" for why in gate.why), ""] if gate.why else []
    rows = [[one.rule, one.measured, one.bound, one.verdict] for one in gate.lines]
    reasons = [f"- {markdown(one.why)}" for one in gate.lines if one.why]
    return [*_table(["rule", "measured", "asked for", "verdict"], rows), *reasons, ""]


def _number(outcome: Outcome, figures: Figures | None) -> list[str]:
    rate, interval, bounds = outcome.pass_rate, outcome.interval, outcome.bounds
    if rate is None or interval is None or bounds is None:
        return []
    rows = [
        ["pass rate", f"{rate:.4f}: {outcome.passed} of {outcome.accepted} scored runs"],
        ["interval", f"{interval.low:.4f} to {interval.high:.4f} (Wilson, 95%)"],
        ["bounds over holes", f"{bounds.low:.4f} to {bounds.high:.4f}"],
        ["holes", ", ".join(f"{why} {count}" for why, count in outcome.holes.items()) or "none"],
        ["tokens", f"{outcome.tokens.spent:,}"],
        ["snapshot", outcome.snapshot_id or "none"],
    ]
    told = _table(["", ""], rows)
    if figures is not None and (
        more := [line for line in lines_of(figures, everything=True) if not line.startswith(("by ", "  "))]
    ):
        told += [*(f"- {markdown(' '.join(line.split()))}" for line in more), ""]
    return told


def _groups(field: str, groups: Sequence[Group]) -> list[str]:
    titles, *rows = group_rows(groups[:_GROUPS])
    more = [f"And {len(groups) - _GROUPS} more.", ""] if len(groups) > _GROUPS else []
    return [*_table([field, *titles[1:]], rows), *more]


def _changed(figures: Figures) -> list[str]:
    """Cases that came out otherwise than in the baseline, the worse ones first."""
    found = figures.comparison.changed if figures.comparison is not None else ()
    if not found:
        return []
    rows = [[one.case, share(one.before), share(one.now)] for one in found[:_RUNS]]
    more = [f"And {len(found) - _RUNS} more.", ""] if len(found) > _RUNS else []
    title = "1 case changed" if len(found) == 1 else f"{len(found)} cases changed"
    return [f"### {title}", "", *_table(["case", "in the baseline", "here"], rows), *more]


def _missed(found: Found) -> list[str]:
    """Runs that did not pass, and runs that are not known."""
    outcome = found.outcome
    passing = next(iter(outcome.bins))
    wrong: Mapping[str, str] = {run: bin_ for run, bin_ in outcome.runs.items() if bin_ != passing}
    both = [[run, bin_, *_answered(found, run)] for run, bin_ in wrong.items()]
    both += [[run, f"no score: {why}", outcome.hole_details.get(run, ""), ""] for run, why in outcome.hole_runs.items()]
    if not both:
        return []
    both.sort(key=lambda row: case_and_trial(row[0]))
    more = [f"And {len(both) - _RUNS} more.", ""] if len(both) > _RUNS else []
    titles = ["run", "", "answer, or what was said last", "target"]
    title = "1 run did not pass" if len(both) == 1 else f"{len(both)} runs did not pass"
    return [f"### {title}", "", *_table(titles, both[:_RUNS]), *more]


def _answered(found: Found, run: str) -> list[str]:
    shown = found.wrong.get(RunId(run))
    if shown is None:
        return [found.said.get(RunId(run), ""), ""]
    told = shown.told()
    return [brief(told["answer"], _CELL), brief(told["target"], _CELL)]


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(markdown(cell) for cell in cells) + " |"

    return [line(titles), "|" + " --- |" * len(titles), *map(line, rows), ""]
