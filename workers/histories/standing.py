"""How a batch's archive stands beside its server, for who begins to run it and for who has run it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from bus.archived import standing_of
from bus.cluster import ServerBus
from bus.port import BatchInfo
from workers.histories.archive_place import SEGMENT, most
from workers.histories.segments import SegmentFiles

__all__ = ["check_goes_on", "left_behind"]


async def check_goes_on(bus: ServerBus, parts: Iterable[BatchInfo], archive: Path) -> None:
    """Whether an archive in this directory can go on from where these batches are archived.

    Raises InputError when it cannot be written to, or a segment is missing in it; ViolationError.
    """
    for info in parts:
        files = SegmentFiles.of(archive, info)
        at = await bus.of(info.spec.batch)
        await asyncio.to_thread(files.chain, await standing_of(at.link, at.keys(info.spec.batch)))
        await asyncio.to_thread(files.make)


async def left_behind(bus: ServerBus, parts: Iterable[BatchInfo], segment: int | None) -> str:
    """How much is on the server that should have gone, in words; empty where the archivist has done its work."""
    found = 0
    for info in parts:
        at = await bus.of(info.spec.batch)
        length = int(await at.link.command("XLEN", at.keys(info.spec.batch).history))
        found += length if length >= most(segment or SEGMENT) else 0
    return f"{found:,} entries of the history were not archived" if found else ""
