"""Lines that hold event loops, each told once while the batch runs: until then all that is seen is silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bus.cluster import ServerBus
from bus.held_loops import held_loops
from bus.port import Counters
from bus.types import BatchId
from workers.processes.held_loops import places_of

__all__ = ["HeldLoopNews"]

_MOST: Final = 5
"""Places that are told while a batch runs."""


class HeldLoopNews:
    """Which places have been told."""

    every = 1.0

    def __init__(self, bus: ServerBus, batches: Sequence[BatchId]) -> None:
        """None yet."""
        self._bus, self._batches = bus, batches
        self._told: set[str] = set()

    async def news(self, _: Counters, /) -> list[str]:
        """A line for each place that is new."""
        if len(self._told) >= _MOST:
            return []
        fresh: dict[str, str] = {}
        for batch in self._batches:
            places = places_of(await held_loops(await self._bus.of(batch), batch))
            fresh = {where: line for where, line in places.items() if where not in self._told} | fresh
        told = list(fresh.items())[: _MOST - len(self._told)]
        self._told |= {where for where, _ in told}
        return [line for _, line in told]
