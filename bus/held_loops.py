"""Who held the event loop of a run's worker, and where in its code: what a worker whose loop is blocked can still say.

Such a worker cannot beat, so all that the server sees of it is silence; its run is taken by others, who are blocked in
their turn, and the run ends as poison. But a thread beside the loop knows the line (`workers.processes.watchdog`), and
writes it down here. It is a remark and no decision: no script reads it, no fence knows of it, and it goes with its
batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from bus.errors import ReplyError
from bus.redis_bus import RedisBus
from bus.replies import hash_of
from bus.tombstones import Tombstone
from bus.types import BatchId, RunId

__all__ = ["HeldLoop", "held_loops", "note_held_loop"]

_MOST: Final = 1_000
"""Runs of a batch that are named: a solver that blocks does so in each of its runs, and a few of them tell it."""
_LONGEST: Final = 500
"""Characters of a place."""


@dataclass(frozen=True, slots=True)
class HeldLoop:
    """A worker's event loop that did not get on."""

    consumer: str
    """The worker."""
    seconds: float
    """For how long when it was noticed: about a lease."""
    where: str
    """`agent.py:8`, or the innermost line of all."""

    @classmethod
    def read(cls, value: str) -> HeldLoop | None:
        """From what stands on the server; None for what no release of ours wrote."""
        try:
            said = json.loads(value)
            return cls(str(said["consumer"]), float(said["seconds"]), str(said["where"]))
        except (ValueError, TypeError, KeyError):
            return None


async def note_held_loop(bus: RedisBus, batch: BatchId, run: RunId, held: HeldLoop) -> None:
    """Write it down, in the place of what was noted of that run before. Raises EvalbusError."""
    keys = bus.keys(batch)
    known = await held_loops(bus, batch)
    if len(known) >= _MOST and run not in known:
        return
    value = json.dumps({**asdict(held), "where": held.where[:_LONGEST]})
    _, left = await bus.link.commands([("HSET", keys.loops, run, value), ("HGET", keys.registry, batch)])
    if left is not None and Tombstone.read(left.decode()):  # pruned meanwhile: nobody would ever remove it
        await bus.link.command("HDEL", keys.loops, run)


async def held_loops(bus: RedisBus, batch: BatchId) -> Mapping[RunId, HeldLoop]:
    """What was noted, the last of each run; nothing for a user who may not read it. Raises EvalbusError."""
    try:
        flat = await bus.link.command("HGETALL", bus.keys(batch).loops)
    except ReplyError as error:
        if error.code != "NOPERM":  # its rights were given by a release that had no such key
            raise
        return {}
    found = {RunId(run): HeldLoop.read(value) for run, value in hash_of(flat).items()}
    return {run: held for run, held in found.items() if held is not None}
