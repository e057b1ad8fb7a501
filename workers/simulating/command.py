"""`evalbus simulate`: schedules until one breaks something, or one that is repeated."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bus.errors import InputError
from workers.files import check_writable, write_whole
from workers.simulating.faults import chosen
from workers.simulating.many import Found, Search, Tally, alone, search
from workers.simulating.schedule import read_schedule, settings_of, write_schedule
from workers.terminals import can_redraw, console_on

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ScheduleOptions", "check_alone", "repeat", "simulate"]


_NAMED: Final = 20
"""Properties named in the summary, at most."""


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """What is to be played."""

    suite: Path | None
    seed: int
    seeds: int
    faults: str | None
    cases: int | None
    json_file: Path | None
    found_file: Path | None
    processes: int | None = None


def simulate(options: ScheduleOptions, console: Console) -> bool:
    """Play the seeds; True when every property held. Raises InputError."""
    kinds = chosen(options.faults)
    settings_of(options.suite, options.cases)  # whatever is wrong with it is said before anything starts
    found_file = options.found_file or Path(f"violation-{options.seed}.json")
    for file in (options.json_file, found_file):
        if file is not None:
            check_writable(file)
    asked = Search(options.suite, kinds, cases=options.cases)
    seeds = range(options.seed, options.seed + options.seeds)
    with _progress(len(seeds)) as tick:
        tally = search(asked, seeds, tick, options.processes)
    _show(tally, options.seed, console)
    for one in tally.found[:1]:
        write_schedule(one.schedule, one.violation.property, options.suite, found_file)
        _tell(one, found_file, console)
    _write(options.json_file, tally.as_json(options.seed))
    return not tally.found


def repeat(file: Path, json_file: Path | None, console: Console) -> bool:
    """Play the schedule of a file; True when every property held. Raises InputError."""
    schedule = read_schedule(file)
    if json_file is not None:
        check_writable(json_file)
    tally = alone(schedule)
    _show(tally, schedule.seed, console)
    for one in tally.found[:1]:
        _tell(one, file, console)
    _write(json_file, tally.as_json(schedule.seed))
    return not tally.found


# --- showing ----------------------------------------------------------------------------------------------


def _show(tally: Tally, seed: int, console: Console) -> None:
    broken = sorted(name for name, count in tally.violations.items() if count)
    unseen = sorted(name.partition(":")[0] for name, count in tally.examined.items() if not count)
    lines = [
        f"from seed {seed}: {tally.schedules:,} schedules, {tally.runs:,} runs, {tally.entries:,} decisions, "
        f"{tally.seconds:,.0f} s of simulated time",
        "faults: " + (", ".join(f"{name} {count:,}" for name, count in sorted(tally.faults.items())) or "none"),
        f"preemptions {tally.preemptions:,}, redeliveries {tally.redeliveries:,}, batches stuck {tally.stuck:,}, "
        f"runs that are holes for what went wrong {tally.lost:,}",
        f"effects: {tally.committed:,} committed, {tally.external:,} at the tool; "
        f"tokens: {tally.tokens_ledger:,} in the ledger, {tally.tokens_lab:,} at the model (where none was a guess)",
        f"from the last fault to the end: median {tally.late_at(0.5):.1f} lease times, "
        f"one in a hundred {tally.late_at(0.99):.1f}, the longest {tally.late_at(1.0):.1f}",
        f"properties: {len(tally.examined)}, {len(broken)} broken"
        + (f", {len(unseen)} with nothing to examine{_some(unseen)}" if unseen else ""),
    ]
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def _some(names: list[str]) -> str:
    """A few are named; very many are those of planes that the suite does not have."""
    return f": {', '.join(names)}" if len(names) <= _NAMED else ""


def _tell(one: Found, file: Path, console: Console) -> None:
    schedule = one.schedule
    crew = schedule.crew
    lines = [
        f"seed {schedule.seed}, suite {schedule.setting.name}, {crew.planners} planners, {crew.workers} workers, "
        f"{crew.scorers} scorers: {one.violation.property}",
        f"  {one.violation.says}",
    ]
    faults = schedule.faults or ()
    lines += ["  the shortest schedule that shows it:" if faults else "  without any fault"]
    lines += [f"  {number:>3}. {fault}" for number, fault in enumerate(faults, start=1)]
    lines += [f"  again: evalbus simulate --schedule {file}"]
    for line in lines:
        console.print(line, soft_wrap=True, markup=False, style="bold red" if line is lines[0] else None)


def _write(file: Path | None, told: dict[str, Any]) -> None:
    if file is not None:
        write_whole(file, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Callable[[Tally], None]]:
    """A bar on a terminal, elsewhere nothing."""
    if not can_redraw(sys.stderr):
        yield lambda _tally: None
        return
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=console_on(sys.stderr), transient=True) as bar:
        task = bar.add_task("schedules", total=count)
        yield lambda tally: bar.update(task, completed=tally.schedules)


def check_alone(suite: Path | None, schedule: Path | None, fleet: int | None) -> None:
    """A suite, a schedule and a fleet are three answers to one question. Raises InputError."""
    if sum(one is not None for one in (suite, schedule, fleet)) > 1:
        raise InputError("a suite, --schedule and --fleet are three answers to one question", remedy="give one of them")
