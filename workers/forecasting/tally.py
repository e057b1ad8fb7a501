"""What is counted while a fleet is played, and the estimate that it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.forecasting.fleet import Estimate, Fleet

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Times are seconds, summed over all slots, or machines."""

    ends: list[list[float]]
    """Of each shard: when its runs have ended, in order."""
    poison: int = 0
    preemptions: int = 0
    redeliveries: int = 0
    tokens: int = 0
    orphans: int = 0
    busy: float = 0.0
    waiting: float = 0.0
    missed: float = 0.0
    gone: float = 0.0
    """Without a machine."""

    @property
    def ended(self) -> int:
        """Runs."""
        return sum(map(len, self.ends))

    def estimate(self, fleet: Fleet, seconds: float, server_busy: float) -> Estimate:
        """After so many seconds, in which the busiest server has worked for `server_busy`."""
        whole = max(seconds * fleet.workers * fleet.slots, 1e-9)
        busy, waiting, gone = self.busy / whole, self.waiting / whole, self.gone * fleet.slots / whole
        return Estimate(
            fleet=fleet,
            seconds=seconds,
            scored=self.ended - self.poison,
            poison=self.poison,
            busy=busy,
            waiting=waiting,
            idle=max(1.0 - busy - waiting - gone, 0.0),
            gone=gone,
            steady=_steady(self.ends),
            server=min(server_busy / max(seconds, 1e-9), 1.0),
            preemptions=self.preemptions,
            redeliveries=self.redeliveries,
            missed=self.missed / self.redeliveries if self.redeliveries else 0.0,
            tokens=self.tokens,
            orphans=self.orphans,
        )


def _steady(shards: Sequence[Sequence[float]]) -> float:
    """Ends a second between the first and the last quarter; of the shard that is slowest for its share of the runs."""
    return min(_middle_rate(ends) * sum(map(len, shards)) / max(len(ends), 1) for ends in shards)


def _middle_rate(ends: Sequence[float]) -> float:
    first, last = len(ends) // 4, len(ends) - 1 - len(ends) // 4
    return (last - first) / (ends[last] - ends[first]) if last > first and ends[last] > ends[first] else 0.0
