"""`evalbus export`: the history as a file, written as it is read, and only under its name when it is whole.

Memory grows with the runs of the batch, whose rows make the snapshot in the last line; not with its entries.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from bus.archived import ArchivedError, order_of, standing_of
from bus.cluster import ServerBus
from bus.errors import InputError, ViolationError
from bus.export import Far, chained_lines, closing, opening
from bus.export_format import Line
from bus.partitions import part_name
from bus.port import BatchInfo
from bus.redis_bus import RedisBus
from bus.snapshot import Snapshot
from bus.types import BatchId
from workers.histories.history_files import check_target, file_of_part, writing
from workers.histories.segments import SegmentFiles, chain_of, entry_of
from workers.results.fetching import info_of
from workers.results.whole import whole_of
from workers.ticking import ticking

__all__ = ["Exported", "export_batch", "export_whole", "exported_lines", "told_lines"]

_TICK = 1_000  # lines between two looks at the progress


@dataclass(frozen=True, slots=True)
class Exported:
    """One history in a file."""

    file: Path
    lines: int
    """Decisions in it."""


async def export_whole(bus: ServerBus, batch: BatchId, file: Path, archive: Path | None = None) -> list[Exported]:
    """Write the export, of a partitioned batch one a partition: `FILE.p1.jsonl` and so on.

    `archive`: as for `exported_lines`. Raises InputError, ViolationError.
    """
    whole = await whole_of(bus, batch)
    if whole is None or not whole.is_partitioned:
        return [Exported(file, await export_batch(bus, batch, file, archive))]
    if str(file) == "-":
        raise InputError(
            f"batch {batch!r} is kept in {whole.of} partitions, each with a history of its own",
            remedy=f"name a file, or one of them: evalbus export {part_name(batch, 1)} -",
        )
    beside = [file_of_part(file, one.spec.part.number) for one in whole.parts if one.spec.part is not None]
    for one in beside:
        check_target(one)
    return [
        Exported(one, await export_batch(bus, name, one, archive))
        for name, one in zip(whole.batches, beside, strict=True)
    ]


async def export_batch(bus: ServerBus, batch: BatchId, file: Path, archive: Path | None = None) -> int:
    """Write the export; answers the number of decisions in it. Raises as `exported_lines`."""
    check_target(file)
    info = await info_of(bus, batch)
    count = 0
    with writing(file) as out, ticking("lines", among=sys.stdout if str(file) == "-" else None) as tick:
        async for line in exported_lines(bus, batch, info, archive):
            out.write(line)
            count += 1
            if count % _TICK == 0:
                tick(count)
    return count - 2


async def exported_lines(
    bus: ServerBus, batch: BatchId, info: BatchInfo, archive: Path | None = None
) -> AsyncIterator[bytes]:
    """The lines that an export of the batch has, newline included; `info` is what the batch declared.

    The snapshot is taken of the rows, and only when the entry that ended the batch has been read. `archive`: where the
    history was archived while the batch ran; what is there is read from there, and the rest from the stream.

    Raises InputError when the batch has no history, or a part of it is not to be had; ViolationError for a segment that
    was edited.
    """
    one = await bus.of(batch)
    far = Far()
    yield opening(one.plane, batch, info).encode()
    async for line in told_lines(one, info, far, archive):
        yield line
    if far.lines == 0:
        raise InputError(f"batch {batch!r} has no history on this server")
    snapshot = Snapshot.from_rows(await bus.rows(batch, await bus.run_ids(batch)), info.spec) if far.ended else None
    yield closing(far, snapshot).encode()


async def told_lines(one: RedisBus, info: BatchInfo, far: Far, archive: Path | None) -> AsyncIterator[bytes]:
    """The lines of a batch's history behind `far`, from archive and stream together. Raises as `exported_lines`."""
    keys = one.keys(info.spec.batch)
    number = 0
    while True:
        standing = None if archive is None else await standing_of(one.link, keys)
        if archive is not None and standing is not None and standing.number > number:
            files = SegmentFiles.of(archive, info)
            for at, digest in files.chain(standing, after=number):
                for line in _behind(files.lines(at, digest), far):
                    yield line
                number = at
                await asyncio.sleep(0)  # for a Ctrl-C to get through
            if (far.last, far.lines, far.head) != (standing.last, standing.lines, standing.head):
                raise ViolationError(f"{files.directory}: its segments end elsewhere than the batch's row says")
        try:
            async for text in chained_lines(one.link, keys, far):
                yield text.encode()
        except ArchivedError:
            if archive is None or (await standing_of(one.link, keys)).number <= number:
                raise
            continue  # more was archived while this was read: the next segments begin where it stopped, or before
        return


def _behind(lines: list[bytes], far: Far) -> Iterator[bytes]:
    """Those of a segment's lines that are not known yet: what is in it may have been read from the stream before."""
    known, head = order_of(far.last), far.head
    for raw in lines:
        entry = entry_of(raw)
        if order_of(entry) <= known:
            head = chain_of(raw)
            continue
        if head != far.head:
            raise ViolationError(f"entry {far.last} was read from the stream as another one than was archived")
        far.last, far.lines, far.head = entry, far.lines + 1, chain_of(raw)
        head = far.head
        if b'"close"' in raw:
            far.ended = far.ended or _ends_batch(raw)
        yield raw


def _ends_batch(raw: bytes) -> bool:
    said = json.loads(raw)
    del said["chain"]
    return Line(**said).ends_batch
