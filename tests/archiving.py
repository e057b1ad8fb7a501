"""A batch whose history goes to an archive: who archives it, and how much of it is still on the server."""

from __future__ import annotations

from pathlib import Path

from bus.port import BatchInfo
from tests.batches import Batch
from workers.histories.archivist import Archivist

SEGMENT = 5  # entries

LONG = 3_600_000  # ms


async def info_of(batch: Batch) -> BatchInfo:
    """What it declared."""
    info = await batch.bus.info(batch.name)
    assert info is not None
    return info


async def length(batch: Batch) -> int:
    """Entries of the history that are on the server."""
    return int(await batch.wire.call("XLEN", batch.keys.history))


def archivist_of(batch: Batch, place: Path, *, segment: int = SEGMENT, lease_ms: int = LONG) -> Archivist:
    """One that cuts small segments."""
    return Archivist(batch.bus, place, segment, lease_ms)
