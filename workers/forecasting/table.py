"""What fleets of 10, 100 and 1,000 workers get done, on one server and on more: by arithmetic, and simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from workers.forecasting.capacity import Capacity, capacity
from workers.forecasting.costs import Costs
from workers.forecasting.fleet import Fleet
from workers.forecasting.queues import estimate

__all__ = ["KINDS", "Row", "fleets", "rows"]

KINDS: Final[Mapping[str, Fleet]] = {
    "no-op": Fleet(1, slots=8, calls=0),
    "one call of 2 s": Fleet(1, slots=16, calls=1, call_time=2.0),
    "agent: 10 calls of 3 s": Fleet(1, slots=8, calls=10, call_time=3.0),
}
_WORKERS: Final = (10, 100, 1_000)
_SHARDS: Final = (1, 3, 6)
_TURNS: Final = 6
"""Runs for each slot: the middle half of them is in nobody's start and nobody's tail."""


@dataclass(frozen=True, slots=True)
class Row:
    """One fleet."""

    kind: str
    fleet: Fleet
    capacity: Capacity
    simulated: float
    """Runs a second."""
    server: float
    """Share of the time in which the busiest server was busy."""


def fleets() -> Iterator[tuple[str, Fleet]]:
    """Those of the table."""
    for kind, fleet in KINDS.items():
        for workers in _WORKERS:
            for shards in _SHARDS:
                runs = max(_TURNS * workers * fleet.slots, 2_000)
                yield kind, replace(fleet, workers=workers, shards=shards, runs=runs)


def rows(costs: Costs, seed: int = 0) -> Iterator[Row]:
    """One after another: some take seconds."""
    for kind, fleet in fleets():
        told = estimate(fleet, costs, seed)
        yield Row(kind, fleet, capacity(fleet, costs), told.steady, told.server)
