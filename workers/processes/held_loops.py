"""Runs whose solver holds its worker's event loop: told while they do, and in the place of "went silent" when they end.

A worker whose loop is blocked cannot beat, so its run is taken by others, who are blocked in their turn. All that the
rows say of it is silence, and "every worker that held it went silent" sends its reader to the logs of all of them. So
`workers.processes.watchdog` has it written down beside the batch (`bus.held_loops`): which run it was, for how long,
and at which line. Where the worker could not (its user may not; its server was away), the logs of `evalbus run` on this
machine may say it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from bus.held_loops import HeldLoop, held_loops
from bus.port import RunRow
from bus.redis_bus import RedisBus
from bus.types import BatchId, RunId

if TYPE_CHECKING:
    from workers.results.outcome import Outcome

__all__ = ["places_of", "rows_with_held_loops", "said_of", "with_held_loops"]

_NOTE: Final = b'"loop.held"'
_REMEDY: Final = "use asyncio.to_thread"


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
