"""The archivist: takes a batch's history off the server while the batch runs, so that its memory stays bounded.

    claim     the lease of the batch's archive; whoever else has it goes on, and this one stands by
    write     the oldest entries, a segment of them, as an export spells them, into a file of its own
    read      the file is read back from the disk, and its name says what it holds
    retire    one step on the server: these entries go, and the batch's row says where the archive ends

| killed behind | leaves | the next archivist |
| --- | --- | --- |
| write | a file that has no segment's name | removes it |
| read | a segment that nothing counts, and its entries on the server | writes it again, over the same or beside it |
| retire | nothing | goes on |

A segment is cut when there are enough entries for one and some that stay: those who watch a batch read its newest ones.

The lease is short, so that another soon goes on for one that was killed, and is renewed while a segment is written and
while there is nothing to write. One that lost it all the same (it was stopped, or its disk was slow and its loop stood
still) is refused at the trim, by its epoch.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from bus import failpoints
from bus.archived import Segment, Standing, claim, retire_segment, standing_of
from bus.cluster import ServerBus
from bus.errors import EvalbusError, InputError, ViolationError
from bus.export import Far, chained_lines
from bus.port import BatchInfo
from bus.redis_bus import RedisBus
from bus.types import BatchId, EntryId
from workers.histories.archive_place import SEGMENT, most
from workers.histories.segment_writing import SegmentWriter
from workers.histories.segments import SegmentFiles

__all__ = ["Archivist", "Taken"]

log = structlog.get_logger("evalbus.archivist")

_LARGEST: Final = 16 << 20  # bytes of lines after which a segment ends: whoever reads one holds it in memory
_LEASE_MS: Final = 5_000  # of silence after which another may take over
_RENEWED: Final = 3  # times within a lease
_TURN: Final = 50  # lines between two moments at which others in this process may go on


class Taken(InputError):
    """Another archivist holds the batch's archive."""

    def __init__(self, batch: BatchId, by: str) -> None:
        """`by`: who, as it named itself."""
        super().__init__(f"the history of batch {batch!r} is being archived by {by}", remedy="wait for it, or stop it")


@dataclass(slots=True)
class _Held:
    """A batch whose archive this one holds, or stands by for."""

    files: SegmentFiles
    """It remembers the segments that it has seen: who stands by looks again and again."""
    epoch: int = 0
    """Under which this one holds it; 0: it does not."""
    checked: str = ""
    """The digest of the segment up to which the files were found to be there, since this one holds it."""
    renewed: float = float("-inf")
    """When its lease was, by the loop's clock."""

    def lost(self) -> None:
        """Another holds it, or may by now."""
        self.epoch, self.checked = 0, ""


@dataclass(slots=True)
class Archivist:
    """See the module's text. `archive`: the directory; `segment`: entries in one; `lease_ms`: of its own silence."""

    bus: ServerBus
    archive: Path
    segment: int = SEGMENT
    lease_ms: int = _LEASE_MS
    _id: str = field(default_factory=lambda: secrets.token_hex(8))
    _held: dict[str, _Held] = field(default_factory=dict)

    @property
    def _by(self) -> str:
        return f"{socket.gethostname()}, process {os.getpid()}"

    async def tend(self, info: BatchInfo) -> int:
        """Archive what is due of a batch; how many segments that were.

        Raises Taken while another archives it; InputError when a file cannot be written or one is missing;
        ViolationError for one that is not what was written.
        """
        written = 0
        while await self.due(info):
            await self.one(info)
            written += 1
        await self.keep(info)
        return written

    async def due(self, info: BatchInfo) -> int:
        """How many segments there are to be written."""
        at = await self.bus.of(info.spec.batch)
        length = int(await at.link.command("XLEN", at.keys(info.spec.batch).history))
        return max(0, length - most(self.segment) + self.segment) // self.segment

    async def keep(self, info: BatchInfo) -> None:
        """Renew the lease where this one has it, while nothing is due: it is not to lapse under one that is well."""
        held = self._held.get(info.incarnation)
        if held is not None and held.epoch and asyncio.get_running_loop().time() >= held.renewed + self._renew_after:
            await self._renew(await self.bus.of(info.spec.batch), info.spec.batch, held)

    async def let_go(self, info: BatchInfo) -> None:
        """Whoever comes next need not wait for the lease's end."""
        batch = info.spec.batch
        held = self._held.pop(info.incarnation, None)
        if held is not None and held.epoch:
            await claim(await self.bus.of(batch), batch, self._id, self._by, self._place, 0)

    @property
    def _place(self) -> str:
        return f"{socket.gethostname()}:{self.archive.resolve()}"

    async def one(self, info: BatchInfo) -> None:
        """Archive one segment, which is due. Raises as `tend`."""
        batch = info.spec.batch
        at = await self.bus.of(batch)
        held = self._held.setdefault(info.incarnation, _Held(SegmentFiles.of(self.archive, info)))
        standing = await standing_of(at.link, at.keys(batch))
        if standing.digest != held.checked:
            # Before anything is claimed: in a directory that does not have the segments so far nothing can go on.
            await asyncio.to_thread(held.files.chain, standing)
            await asyncio.to_thread(held.files.make)
        decision = await claim(at, batch, self._id, self._by, self._place, self.lease_ms)
        held.renewed = asyncio.get_running_loop().time()
        if decision.reason == "taken":
            held.lost()
            raise Taken(batch, str(decision.answer["by"]))
        if not decision.applied:
            raise InputError(f"batch {batch!r} cannot be archived: {decision}")
        if (epoch := int(decision.answer["epoch"])) != held.epoch:
            held.epoch = epoch
            held.files.clear_unfinished()
            left = await standing_of(at.link, at.keys(batch))  # by the one before, in its last moment
            if left.number != standing.number:
                await asyncio.to_thread(held.files.chain, left, standing.number)
            standing = left
        async with self._renewing(at, batch, held):
            segment = await self._written(at, batch, held.files, standing)
        retired = await retire_segment(at, batch, self._id, epoch, segment)
        if not retired.applied:
            # The file stays: what it is called, it is. Nothing counts it, unless the other one wrote the very same.
            held.lost()
            why = "another archivist has taken over" if retired.reason == "stale_archivist" else str(retired)
            raise InputError(f"segment {segment.number} of the history of batch {batch!r} was refused: {why}")
        removed = int(retired.answer.get("removed", segment.entries))
        if removed != segment.entries:
            raise ViolationError(
                f"segment {segment.number} of batch {batch!r} holds {segment.entries} entries, {removed} were trimmed"
            )
        held.checked = segment.digest
        log.info("segment.archived", batch=batch, number=segment.number, entries=segment.entries, last=segment.last)

    @property
    def _renew_after(self) -> float:
        return self.lease_ms / 1000 / _RENEWED

    async def _renew(self, at: RedisBus, batch: BatchId, held: _Held) -> None:
        decision = await claim(at, batch, self._id, self._by, self._place, self.lease_ms)
        held.renewed = asyncio.get_running_loop().time()
        if not decision.applied or int(decision.answer["epoch"]) != held.epoch:
            held.lost()  # by now; what this one is about to trim is refused

    @contextlib.asynccontextmanager
    async def _renewing(self, at: RedisBus, batch: BatchId, held: _Held) -> AsyncIterator[None]:
        """However long the block takes, its lease does not lapse; unless this whole process stands still."""
        over = asyncio.Event()

        async def renew() -> None:
            while held.epoch:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(over.wait(), self._renew_after)
                if over.is_set():
                    return
                with contextlib.suppress(EvalbusError):  # who writes meets the same, and says so
                    await self._renew(at, batch, held)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            over.set()
            await renewing

    async def _written(self, at: RedisBus, batch: BatchId, files: SegmentFiles, standing: Standing) -> Segment:
        """The next segment, on the disk and under its name."""
        far = Far(standing.last, standing.lines, standing.head)
        writer: SegmentWriter | None = None
        try:
            async with contextlib.aclosing(chained_lines(at.link, at.keys(batch), far, self.segment)) as found:
                last = EntryId("")
                async for text in found:
                    if writer is None:
                        writer = SegmentWriter(files, standing, far.last)
                    if far.last != last and writer.bytes >= _LARGEST:
                        break
                    last = far.last
                    writer.add(last, text.encode(), far.head)
                    if far.lines % _TURN == 0:
                        await asyncio.sleep(0)
            if writer is None:
                raise InputError(f"batch {batch!r} has nothing to archive any more")  # noqa: TRY301 - a batch that is gone
            segment = await asyncio.to_thread(writer.end)
            await _point("archive.write")
            await asyncio.to_thread(writer.name, segment)
            await _point("archive.read")
        except BaseException:
            if writer is not None:
                writer.give_up()
            raise
        return segment


async def _point(name: str) -> None:
    """Where `evalbus chaos` may kill it; see `bus.failpoints`."""
    if failpoints.ARMED is not None:
        await failpoints.ARMED.before(name)
