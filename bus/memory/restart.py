"""Another life of the server, in memory: what it voids, and what it may have lost.

The counterpart of `lua/run/restarted.lua`. A batch knows the life of the server in which its tokens were granted. The
first step that is sent to another one is refused; then the floor is raised, and the step is asked again. Generations
up to the floor are void from there on, since a server that comes back may have lost that somebody was fenced.

What it lost is told by whoever simulates it: `saved` is the world as it is now, and `go_back` puts it in place again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bus.memory.batch import MemoryBatch
from bus.memory.streams import MemoryStream, Pending
from bus.memory.world import MemoryWorld
from bus.models.completion import Run as Held
from bus.models.transcript import Run as Chain
from bus.port import Group
from bus.types import BatchId, Digest, EntryId, RunId

__all__ = ["ANY_LIFE", "Saved", "above_the_floor", "go_back", "raise_floor", "saved"]

ANY_LIFE: Final = frozenset({"create", "requeue", "sweep", "bury", "tool_requeue"})
"""Steps that name no token of anybody's: they are taken in whichever life of the server."""

_FOR_EVER: Final = frozenset({"spec", "declared", "incarnation", "_now", "streams", "history"})
"""Of a batch, what never changes, and what is kept by other means."""


def raise_floor(at: MemoryBatch, server: str) -> int:
    """Void all that was granted before. The clock takes part: a counter may have been raised and lost before."""
    at.floor, at.server = max(at.floor + 1, at.now_ms()), server
    held: list[Chain | Held] = [*at.transcript.runs.values(), *at.completion.runs.values()]
    for run in held:
        if run.live is not None and run.gen <= at.floor:
            run.live = None
    return at.floor


def above_the_floor(at: MemoryBatch, run: RunId) -> None:
    """The next lease of this run is numbered past all that may have been granted and lost."""
    if not at.floor:
        return
    chain = at.transcript.runs.setdefault(at.chain_name(run), Chain())
    chain.gen = max(chain.gen, at.floor)
    if at.has_calls:
        # One that was never leased spends nothing of its budget by the first lease: here it is one that was.
        first = Held(at.completion.compute_retries + 1, at.completion.model_retries)
        held = at.completion.runs.setdefault(run, first)
        held.gen = max(held.gen, at.floor)


@dataclass(frozen=True, slots=True)
class Saved:
    """A world as it was. It is put back at most once."""

    batches: Mapping[BatchId, Mapping[str, Any]]
    streams: Mapping[BatchId, Mapping[Group, Mapping[str, Any]]]
    blobs: Mapping[BatchId, dict[Digest, bytes]]


def saved(world: MemoryWorld) -> Saved:
    """Everything that the server holds."""
    return Saved(
        {name: _fields(batch) for name, batch in world.batches.items()},
        {name: {group: _stream(one) for group, one in at.streams.items()} for name, at in world.batches.items()},
        {batch: dict(blobs) for batch, blobs in world.blobs.items()},
    )


def go_back(world: MemoryWorld, to: Saved) -> None:
    """It is as it was; batches that were made since are not there any more. Whoever waits at a stream goes on to."""
    world.batches = {name: batch for name, batch in world.batches.items() if name in to.batches}
    for name, batch in world.batches.items():
        vars(batch).update(to.batches[name])
        for group, was in to.streams[name].items():
            batch.streams[group].put_back(**was)
    world.blobs = dict(to.blobs)


def _fields(batch: MemoryBatch) -> dict[str, Any]:
    changing = {name: value for name, value in vars(batch).items() if name not in _FOR_EVER}
    return copy.deepcopy(changing) | {"history": list(batch.history)}  # its entries are never changed


def _stream(stream: MemoryStream) -> dict[str, Any]:
    pending: dict[EntryId, Pending] = {name: copy.copy(one) for name, one in stream.pending.items()}
    return {"entries": dict(stream.entries), "pending": pending, "new": stream.new(), "last": stream.last}
