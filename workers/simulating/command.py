"""`evalbus simulate`: schedules until one breaks something, one that is repeated, or a fleet's forecast."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bus.errors import InputError
from workers.files import check_writable, write_whole
from workers.quantities import duration
from workers.simulating.faults import chosen
from workers.simulating.many import Found, Search, Tally, alone, search
from workers.simulating.schedule import read_schedule, settings_of, write_schedule

if TYPE_CHECKING:
    from rich.console import Console

    from workers.simulating.fleet import Estimate, Fleet

__all__ = ["FleetOptions", "ScheduleOptions", "check_alone", "forecast", "forecast_table", "repeat", "simulate"]


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


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """A fleet as it is written on the command line: see `workers.simulating.fleet.Fleet`."""

    workers: int
    slots: int
    runs: int
    calls: int
    call_time: str
    spread: float
    tokens: int
    preempt: str
    lease: str
    max_deliveries: int
    resume: str
    bound: int | None
    model_slots: int | None
    shards: int = 1

    def read(self) -> Fleet:
        """The fleet. Raises InputError."""
        from workers.simulating.fleet import Fleet  # noqa: PLC0415 - schedules need none of it

        if self.resume not in ("prefix", "fresh"):
            raise InputError(f"--resume: {self.resume!r} is neither prefix nor fresh")
        rate = re.fullmatch(r"(\d+(?:\.\d+)?)/h", self.preempt)
        if rate is None:
            raise InputError(f"--preempt: {self.preempt!r} is no rate", remedy='write "0.5/h"')
        return Fleet(
            workers=self.workers,
            slots=self.slots,
            runs=self.runs,
            calls=self.calls,
            call_time=_seconds("--call-time", self.call_time),
            spread=self.spread,
            tokens=self.tokens,
            preempted=float(rate[1]),
            lease=_seconds("--lease", self.lease),
            max_deliveries=self.max_deliveries,
            resume="fresh" if self.resume == "fresh" else "prefix",
            bound=self.bound,
            model_slots=self.model_slots,
            shards=self.shards,
        )


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


def forecast(asked: FleetOptions, costs: Path | None, seed: int, json_file: Path | None, console: Console) -> None:
    """Show what a fleet would get done. Raises InputError."""
    from workers.simulating.costs import Costs, read_costs  # noqa: PLC0415 - schedules need none of it
    from workers.simulating.queues import estimate  # noqa: PLC0415

    if json_file is not None:
        check_writable(json_file)
    told = estimate(asked.read(), Costs() if costs is None else read_costs(costs), seed)
    for name, value in _figures(told).items():
        console.print(f"{name:<24}{value}", soft_wrap=True, markup=False)
    _write(json_file, {"seed": seed, **told.as_json()})


def forecast_table(costs: Path | None, seed: int, console: Console) -> None:
    """Show what fleets of 10 to 1,000 workers would get done on one to six servers. Raises InputError."""
    from workers.simulating.costs import Costs, read_costs  # noqa: PLC0415 - schedules need none of it
    from workers.simulating.table import rows  # noqa: PLC0415

    taken = Costs() if costs is None else read_costs(costs)
    console.print("| run | workers | slots each | shards | runs/s | simulated | saturates | busiest server |")
    console.print("|---|---|---|---|---|---|---|---|")
    for row in rows(taken, seed):
        fleet, rate = row.fleet, row.capacity.rate
        console.print(
            f"| {row.kind} | {fleet.workers:,} | {fleet.slots} | {fleet.shards} | {_three(rate)} | "
            f"{_three(row.simulated)} | {row.capacity.saturates} | {row.server:.0%} |",
            soft_wrap=True, markup=False, highlight=False,
        )  # fmt: skip


def _three(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004


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


def _figures(told: Estimate) -> dict[str, str]:
    fleet = told.fleet
    share = told.orphans / told.tokens if told.tokens else 0.0
    return {
        "machines x slots": f"{fleet.workers:,} x {fleet.slots:,}",
        "time to close": _time(told.seconds),
        "runs an hour": f"{told.runs_per_hour:,.0f}",
        "scored, poison": f"{told.scored:,}, {told.poison:,}",
        "slots: at the model": f"{told.busy:.1%}",
        "slots: waiting for it": f"{told.waiting:.1%}",
        "slots: no run": f"{told.idle:.1%}",
        "slots: no machine": f"{told.gone:.1%}",
        "server busy": f"{told.server:.1%}",
        "preemptions": f"{told.preemptions:,}",
        "redeliveries": f"{told.redeliveries:,}",
        "loss to next claim": f"{told.missed:.1f} s",
        "tokens": f"{told.tokens:,}",
        "spent in vain": f"{told.orphans:,} ({share:.1%})",
    }


def _seconds(option: str, written: str) -> float:
    try:
        return duration(written)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _write(file: Path | None, told: dict[str, Any]) -> None:
    if file is not None:
        write_whole(file, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Callable[[Tally], None]]:
    """A bar on a terminal, elsewhere nothing."""
    if not sys.stderr.isatty():
        yield lambda _tally: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("schedules", total=count)
        yield lambda tally: bar.update(task, completed=tally.schedules)


def check_alone(suite: Path | None, schedule: Path | None, fleet: int | None) -> None:
    """A suite, a schedule and a fleet are three answers to one question. Raises InputError."""
    if sum(one is not None for one in (suite, schedule, fleet)) > 1:
        raise InputError("a suite, --schedule and --fleet are three answers to one question", remedy="give one of them")
