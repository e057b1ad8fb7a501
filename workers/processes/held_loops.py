"""Runs whose solver holds its worker's event loop: told while they do, and in the place of "went silent" when they end.

A worker whose loop is blocked cannot beat, so its run is taken by others, who are blocked in their turn. All that the
rows say of it is silence, and "every worker that held it went silent" sends its reader to the logs of all of them. So
`workers.processes.watchdog` has it written down beside the batch (`bus.held_loops`): which run it was, for how long,
and at which line. Where the worker could not (its user may not; its server was away), the logs of `evalbus run` on this
machine may say it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from bus.held_loops import HeldLoop, held_loops
from bus.port import RunRow
from bus.redis_bus import RedisBus
from bus.types import BatchId, RunId

if TYPE_CHECKING:
    from bus.cluster import ServerBus
    from workers.results.outcome import Outcome

__all__ = ["HeldLoopNews", "places_of", "rows_with_held_loops", "said_of", "with_held_loops"]

_NOTE: Final = b'"loop.held"'
_REMEDY: Final = "use asyncio.to_thread"
_LOOK_EVERY: Final = 1.0
"""Seconds between two looks of who follows a batch."""
_MOST: Final = 5
"""Places that are told while a batch runs."""


def said_of(held: HeldLoop) -> str:
    """`its solver blocked the event loop for over 5.0 s at agent.py:8: use asyncio.to_thread`."""
    return f"its solver blocked the event loop for over {held.seconds:g} s at {held.where}: {_REMEDY}"


def places_of(held: Mapping[RunId, HeldLoop]) -> dict[str, str]:
    """Each place with a line about a run that it held up: a mistake that a thousand runs have in common is one line."""
    told: dict[str, str] = {}
    for run, one in held.items():
        told.setdefault(one.where, f"{run} at {one.consumer}: {said_of(one)}")
    return told


class _Rows(Protocol):
    async def of(self, batch: BatchId) -> RedisBus: ...

    async def rows(self, batch: BatchId, runs: Sequence[RunId]) -> list[RunRow]: ...


async def rows_with_held_loops(bus: _Rows, batch: BatchId, runs: Sequence[RunId]) -> list[RunRow]:
    """As `rows`; one that is poison says which line held its worker's loop, where that is known."""
    rows = await bus.rows(batch, runs)
    if not any(row.hole == "poison" for row in rows):
        return rows
    held = await held_loops(await bus.of(batch), batch)
    return [
        replace(row, detail=said_of(held[row.run])) if row.hole == "poison" and row.run in held else row for row in rows
    ]


class HeldLoopNews:
    """Lines that hold event loops, each told once while the batch runs."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Nothing is told yet. `clock`: seconds."""
        self._clock, self._next = clock, float("-inf")
        self._told: set[str] = set()

    async def news(self, bus: ServerBus, batches: Sequence[BatchId]) -> list[str]:
        """A line for each place that is new; none when it was asked a moment ago."""
        if self._clock() < self._next or len(self._told) >= _MOST:
            return []
        self._next = self._clock() + _LOOK_EVERY
        fresh: dict[str, str] = {}
        for batch in batches:
            places = places_of(await held_loops(await bus.of(batch), batch))
            fresh = {where: line for where, line in places.items() if where not in self._told} | fresh
        told = list(fresh.items())[: _MOST - len(self._told)]
        self._told |= {where for where, _ in told}
        return [line for _, line in told]


def with_held_loops(outcome: Outcome, logs: Path) -> Outcome:
    """The outcome, with what the logs in that directory know of its poison. Never raises: they may be gone."""
    poison = {run for run, why in outcome.hole_runs.items() if why == "poison"}
    if not poison:
        return outcome
    found = {run: said for run, said in _notes(logs).items() if run in poison}
    return replace(outcome, hole_details={**outcome.hole_details, **found})


def _notes(logs: Path) -> Mapping[RunId, str]:
    """Of each run the last."""
    found: dict[RunId, str] = {}
    for file in sorted(logs.glob("*.log")):
        try:
            with file.open("rb") as lines:
                noted = [json.loads(line) for line in lines if _NOTE in line]
        except (OSError, ValueError):  # rotated, or written for people
            continue
        for note in noted:
            if note.get("event") == "loop.held" and note.get("run"):
                held = HeldLoop("", float(note.get("seconds", 0)), str(note.get("where")))
                found[RunId(note["run"])] = said_of(held)
    return found
