"""`evalbus export`: the history as a file, written as it is read, and only under its name when it is whole.

Memory grows with the runs of the batch, whose rows make the snapshot in the last line; not with its entries.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.history import export
from bus.partitions import part_name
from bus.port import BatchInfo
from bus.snapshot import Snapshot
from bus.types import BatchId
from workers.history_files import check_target, writing
from workers.job import info_of
from workers.ticking import ticking
from workers.whole import whole_of

__all__ = ["Exported", "export_batch", "export_whole", "exported_lines"]

_TICK = 1_000  # lines between two looks at the progress


@dataclass(frozen=True, slots=True)
class Exported:
    """One history in a file."""

    file: Path
    lines: int
    """Decisions in it."""


async def export_whole(bus: ServerBus, batch: BatchId, file: Path) -> list[Exported]:
    """Write the export, of a partitioned batch one a partition: `FILE.p1.jsonl` and so on. Raises InputError."""
    whole = await whole_of(bus, batch)
    if whole is None or not whole.is_partitioned:
        return [Exported(file, await export_batch(bus, batch, file))]
    if str(file) == "-":
        raise InputError(
            f"batch {batch!r} is kept in {whole.of} partitions, each with a history of its own",
            remedy=f"name a file, or one of them: evalbus export {part_name(batch, 1)} -",
        )
    beside = [file_of_part(file, number) for number in range(1, len(whole.parts) + 1)]
    for one in beside:
        check_target(one)
    return [Exported(one, await export_batch(bus, name, one)) for name, one in zip(whole.batches, beside, strict=True)]


def file_of_part(file: Path, number: int) -> Path:
    """`nightly.jsonl.zst` is `nightly.p1.jsonl.zst` for the first partition."""
    stem, dot, ending = file.name.partition(".jsonl")
    return file.with_name(f"{stem}.p{number}{dot}{ending}")


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
