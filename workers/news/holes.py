"""The first hole of each reason, told while the batch runs.

A wrong key, or a typing error in the solver, makes a hole of each run. Whoever sees which after the first of ten
thousand can stop, and has not waited for the others.
"""

from __future__ import annotations

from typing import Final

from bus.cluster import ServerBus
from bus.port import Counters
from workers.brief import brief
from workers.processes.held_loops import rows_with_held_loops
from workers.results.whole import Whole

__all__ = ["FirstHoles"]

_MOST: Final = 20_000
"""Runs of a partition that are searched for one that says more: the last that were admitted, for the reason is new."""
_AT_ONCE: Final = 500
_DETAIL: Final = 300


class FirstHoles:
    """Which reasons have been told."""

    every = 0.0  # the counters are there anyway

    def __init__(self, bus: ServerBus, whole: Whole) -> None:
        """None yet."""
        self._bus, self._whole = bus, whole
        self._told: set[str] = set()

    async def news(self, counters: Counters, /) -> list[str]:
        """A line for each reason that is new; none when all runs have ended, for the result is about to say it."""
        fresh = {why for why, count in counters.hole_reasons.items() if count} - self._told
        if not fresh or counters.scored + counters.holes >= counters.intended:
            return []
        self._told |= fresh
        found = await _examples(self._bus, self._whole, fresh)
        listed = f"listed by evalbus show {self._whole.name} --only"
        return [f"first {why}: {found.get(why, f'{listed} {why}')}" for why in sorted(fresh)]


async def _examples(bus: ServerBus, whole: Whole, wanted: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in whole.batches:
        admitted = (await bus.counters(part)).admitted
        runs = (await bus.run_ids(part))[max(0, admitted - _MOST) : admitted]
        for start in range(0, len(runs), _AT_ONCE):
            for row in await rows_with_held_loops(bus, part, runs[start : start + _AT_ONCE]):
                if row.hole in wanted:
                    found.setdefault(row.hole, f"{row.run}   {brief(row.detail, _DETAIL)}".rstrip())
            if found.keys() >= wanted:
                return found
    return found
