"""`evalbus export`: the history as a file, written as it is read, and only under its name when it is whole.

Memory grows with the runs of the batch, whose rows make the snapshot in the last line; not with its entries.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from bus.cluster import ServerBus
from bus.history import export
from bus.port import BatchInfo
from bus.snapshot import Snapshot
from bus.types import BatchId
from workers.history_files import check_target, writing
from workers.job import info_of
from workers.ticking import ticking

__all__ = ["export_batch", "exported_lines"]

_TICK = 1_000  # lines between two looks at the progress


async def export_batch(bus: ServerBus, batch: BatchId, file: Path) -> int:
    """Write the export; answers the number of decisions in it. Raises InputError."""
    check_target(file)
    info = await info_of(bus, batch)
    count = 0
    with writing(file) as out, ticking("lines") as tick:
        async for line in exported_lines(bus, batch, info):
            out.write(line)
            count += 1
            if count % _TICK == 0:
                tick(count)
    return count - 2


async def exported_lines(bus: ServerBus, batch: BatchId, info: BatchInfo) -> AsyncIterator[bytes]:
    """The lines that an export of the batch has, newline included; `info` is what the batch declared.

    The snapshot is taken of the rows, and only when the entry that ended the batch has been read.
    """

    async def snapshot() -> Snapshot:
        return Snapshot.from_rows(await bus.rows(batch, await bus.run_ids(batch)), info.spec)

    one = await bus.of(batch)
    async for line in export(one.link, one.plane, batch, info, snapshot, one.shard):
        yield line.encode()
