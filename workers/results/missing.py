"""What is said of a batch that is not there: the names that were probably meant, or else the newest that there are."""

from __future__ import annotations

from collections.abc import Sequence

from bus.archived import began_ms
from bus.cluster import ServerBus
from bus.nearest import several_nearest
from bus.partitions import root_of
from bus.port import BatchStatus
from bus.types import BatchId, Plane
from workers.results.whole import Whole, wholes

__all__ = ["no_such_batch"]

_NAMED = 3


async def no_such_batch(bus: ServerBus, batch: BatchId) -> str:
    """One line. A batch that was pruned may have been meant, too: what is said of that one is where its history is."""
    there = await bus.all_batches()
    gone = {root_of(name) for name, at in there.items() if at is BatchStatus.PRUNED}
    found = await wholes(bus, there)
    near = several_nearest(batch, sorted({*gone, *(one.name for one in found)}), _NAMED)
    if near:
        return f"no batch {batch!r} on this server; did you mean {', '.join(near)}?"
    other = next(plane for plane in Plane if plane is not bus.plane)  # it may be there
    return (
        f"no batch {batch!r} on this server, plane {bus.plane}; {await _newest(bus, found)} "
        f"(another plane: --plane {other})"
    )


async def _newest(bus: ServerBus, found: Sequence[Whole]) -> str:
    if not found:
        return "there are none"
    began = {one.name: await _began_ms(bus, one) for one in found}
    newest = sorted(began, key=lambda name: (-began[name], name))[:_NAMED]
    return (
        f"the newest of {len(found)} are {', '.join(newest)}" if len(found) > _NAMED else f"it has {', '.join(newest)}"
    )


async def _began_ms(bus: ServerBus, whole: Whole) -> int:
    """When the last of its partitions was declared; 0 where their histories are gone."""
    found = []
    for name in whole.batches:
        at = await bus.of(name)
        found.append(await began_ms(at.link, at.keys(name)))
    return max(found)
