"""Runs that ended as poison because their solver held its worker's event loop: told from the logs of `evalbus run`.

A worker whose loop is blocked cannot beat, so its run is taken by others, who are blocked in their turn. All that the
server sees is silence, and "every worker that held it went silent" sends its reader to the logs of all of them. There
`workers.watchdog` noted which run it was, for how long, and at which line.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from bus.types import RunId
from workers.outcome import Outcome

__all__ = ["with_held_loops"]

_NOTE: Final = b'"loop.held"'
_REMEDY: Final = "use asyncio.to_thread"


def with_held_loops(outcome: Outcome, logs: Path) -> Outcome:
    """The outcome, with what the logs in that directory know of its poison. Never raises: they may be gone."""
    poison = {run for run, why in outcome.hole_runs.items() if why == "poison"}
    if not poison:
        return outcome
    found = {run: said for run, said in _notes(logs).items() if run in poison}
    return replace(outcome, hole_details={**outcome.hole_details, **found})


def _notes(logs: Path) -> dict[RunId, str]:
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
                place = f"for over {note.get('seconds')} s at {note.get('where')}"
                found[RunId(note["run"])] = f"its solver blocked the event loop {place}: {_REMEDY}"
    return found
