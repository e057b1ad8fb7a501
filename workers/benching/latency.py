"""How long a run waits for others: from its admission to its lease, from its seal to its verdict.

At full load such a time is the length of a queue and says nothing. So the load is half of what the machine was measured
to do a moment before: a solver sleeps for half a second, give or take a half of that, and there are so many places that
all together end half as many runs a second. The workers have a slot for each place, so a run that is admitted finds one
free. The first runs, one a place, come all at once and are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from bus.history import read_history
from bus.types import BatchId
from workers.benching.driving import staged
from workers.benching.kinds import DEPTH, Kind, SuiteOptions, make_suite
from workers.benching.spread import quantile
from workers.benching.times import run_times

__all__ = ["Latency", "measure_latency"]

_SLEEP = 0.5  # seconds: long beside what a run takes otherwise, or the load would be less than it is meant to be


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds, one a run."""

    admission_to_lease: tuple[float, ...]
    seal_to_verdict: tuple[float, ...]
    share: float
    """Of the highest rate, that at which these runs were really admitted."""

    def as_json(self) -> dict[str, object]:
        """Medians and 99th percentiles."""
        return {
            "share_of_highest_rate": round(self.share, 3),
            **{
                name: {"p50": quantile(values, 0.5), "p99": quantile(values, 0.99), "runs": len(values)}
                for name, values in (
                    ("admission_to_lease_ms", self.admission_to_lease),
                    ("seal_to_verdict_ms", self.seal_to_verdict),
                )
            },
        }


async def measure_latency(directory: Path, runs: int, workers: int, depth: int = DEPTH) -> Latency:
    """`directory` is made. Raises ViolationError for an incomplete history."""
    full = make_suite(directory / "full", Kind.NOOP, SuiteOptions(runs, depth))
    async with staged(directory / "full-home", workers) as stage:
        highest = (await stage.run(full, Kind.NOOP, BatchId("full"))).runs_per_s
    slots = max(1, math.ceil(highest / 2 * _SLEEP / workers))
    places = workers * slots
    options = SuiteOptions(runs + places, slots, bound=places, waits=_SLEEP)
    half = make_suite(directory / "half", Kind.NOOP, options)
    async with staged(directory / "half-home", workers) as stage:
        await stage.run(half, Kind.NOOP, BatchId("half"))
        found = list((await run_times(read_history(stage.bus.link, stage.bus.keys(BatchId("half"))))).values())
    steady = found[places:]
    admitted = [one.admitted for one in steady if one.admitted is not None]
    rate = 1000 * (len(admitted) - 1) / max(1, admitted[-1] - admitted[0])
    return Latency(
        tuple(float(one.leased[0] - one.admitted) for one in steady if one.leased and one.admitted is not None),
        tuple(float(one.scored - one.sealed) for one in steady if one.scored is not None and one.sealed is not None),
        rate / highest,
    )
