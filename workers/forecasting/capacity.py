"""The arithmetic of a fleet: what each of its parts could get done alone. The least of them is what all get done.

    slots        workers x slots, over the time that a run has one: its model calls, the worker's work and the server's
    workers      workers, over the processor time that a run takes of one
    server       shards, over the server's time for a run and the skew
    skew         the largest shard's share of the sixteen hash slots, times the shards

The simulation (`queues.py`) has queues where this has none: the two differ by what waits although all parts have room.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from workers.forecasting.costs import Costs
from workers.forecasting.fleet import Fleet

__all__ = ["SLOTS", "Capacity", "capacity", "shard_of_run", "skew"]

SLOTS: Final = 16
"""As many as a cluster has for batches and partitions: `bus.keys.SHARDS`."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Runs a second that each part could do."""

    slots: float
    workers: float
    server: float

    @property
    def rate(self) -> float:
        """What is to be expected."""
        return min(self.slots, self.workers, self.server)

    @property
    def saturates(self) -> str:
        """Which part it is that has no more."""
        parts = {"slots": self.slots, "workers": self.workers, "server": self.server}
        return min(parts, key=lambda name: parts[name])


def shard_of_run(run: int, shards: int) -> int:
    """Runs are dealt out over the sixteen hash slots as partitions are, and these over the shards."""
    return run % SLOTS * shards // SLOTS


def skew(shards: int) -> float:
    """1 where the sixteen can be shared evenly; 1.125 for three shards and for six."""
    return math.ceil(SLOTS / shards) * shards / SLOTS


def capacity(fleet: Fleet, costs: Costs) -> Capacity:
    """Of machines that stay, at an endpoint that takes all calls, in a batch that has a run for each slot."""
    server, own = costs.server.of_run(fleet.calls), costs.worker.of_run(fleet.calls)
    model = fleet.calls * fleet.call_time * math.exp(fleet.spread**2 / 2)  # the mean of a lognormal, by its median
    held = model + own + server
    return Capacity(
        slots=fleet.workers * fleet.slots / held if held else math.inf,
        workers=fleet.workers / own if own else math.inf,
        server=fleet.shards / (server * skew(fleet.shards)) if server else math.inf,
    )
