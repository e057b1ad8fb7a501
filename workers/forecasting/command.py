"""`evalbus simulate --fleet` and `--fleet-table`: a fleet as it is written there, and what is shown of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bus.errors import InputError
from workers.files import check_writable, write_whole
from workers.forecasting.costs import Costs, read_costs
from workers.forecasting.fleet import Estimate, Fleet
from workers.forecasting.queues import estimate
from workers.forecasting.table import rows
from workers.quantities import duration

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["FleetOptions", "forecast", "forecast_table"]


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """A fleet as it is written on the command line: see `workers.forecasting.fleet.Fleet`."""

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


def forecast(asked: FleetOptions, costs: Path | None, seed: int, json_file: Path | None, console: Console) -> None:
    """Show what a fleet would get done. Raises InputError."""
    if json_file is not None:
        check_writable(json_file)
    told = estimate(asked.read(), Costs() if costs is None else read_costs(costs), seed)
    for name, value in _figures(told).items():
        console.print(f"{name:<24}{value}", soft_wrap=True, markup=False)
    _write(json_file, {"seed": seed, **told.as_json()})


def forecast_table(costs: Path | None, seed: int, console: Console) -> None:
    """Show what fleets of 10 to 1,000 workers would get done on one to six servers. Raises InputError."""
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
