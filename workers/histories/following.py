"""An archivist at work: beside a planner for as long as that plans, or as a command of its own.

The batch comes first. What keeps an archive from going on (a full disk, a directory that is gone, a segment that
somebody edited) is said in the log, and tried again; meanwhile the history grows on the server, and nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Protocol

import structlog

from bus.archived import standing_of
from bus.cluster import ServerBus
from bus.errors import EvalbusError
from bus.imported.looking import only_for_looking
from bus.partitions import is_part_of
from bus.port import BatchInfo
from bus.types import BatchId
from workers.histories.archivist import Archivist, Taken
from workers.histories.segments import SegmentFiles
from workers.histories.standing import check_goes_on
from workers.results.fetching import info_of
from workers.results.whole import whole_of

__all__ = ["Beside", "Following", "archive_batch"]

log = structlog.get_logger("evalbus.archivist")

_LOOK_EVERY = 0.25  # seconds between two looks at how long a history is
_AGAIN = 10.0  # seconds after which what failed is tried again
_BEHIND = 2  # segments that are due and not written, beyond which a planner admits nobody


class _Stoppable(Protocol):
    def stop(self) -> None: ...

    async def run(self) -> None: ...


class Following:
    """Archives the open batches of a plane, or `only` one, until it is stopped."""

    def __init__(self, bus: ServerBus, archivist: Archivist, only: BatchId | None) -> None:
        """`only`: a batch, or the name that partitions have in common."""
        self._bus, self._archivist, self._only = bus, archivist, only
        self._stopping = asyncio.Event()
        self._known: dict[BatchId, BatchInfo] = {}
        self._again: dict[BatchId, float] = {}
        self._behind: set[BatchId] = set()

    def stop(self) -> None:
        """After the segment that is being written."""
        self._stopping.set()

    def is_behind(self, batch: BatchId) -> bool:
        """Whether its history grows faster than it is archived: then no more runs should begin for the moment."""
        return batch in self._behind

    async def run(self) -> None:
        """Until stopped. Of a batch that ends what is due is archived once more; its newest entries stay."""
        while not self._stopping.is_set():
            with contextlib.suppress(EvalbusError):  # whoever plans finds out whether the server is gone for good
                await self._meet()
            written = sum([await self._tend(info) for info in list(self._known.values())])
            if not written:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _LOOK_EVERY)
        self._behind.clear()
        with contextlib.suppress(EvalbusError):
            await self._meet()
            for info in self._known.values():
                await self._archivist.let_go(info)

    async def _meet(self) -> None:
        """Whichever are open now; those that have ended are done with."""
        names = [name for name in await self._bus.batches() if self._only is None or is_part_of(name, self._only)]
        for name in self._known.keys() - set(names):
            self._again.pop(name, None)
            info = self._known.pop(name)
            while await self._tend(info):
                pass
            self._behind.discard(name)
            self._again.pop(name, None)
            with contextlib.suppress(EvalbusError):  # its lease ends by itself
                await self._archivist.let_go(info)
        for name in names:
            if name not in self._known and self._is_its_turn(name):
                await self._learn(name)

    async def _learn(self, batch: BatchId) -> None:
        """What it declared. One that cannot be read (another release's, say) must not hold up those behind it."""
        try:
            found = await self._bus.info(batch)
        except Exception as error:
            self._put_off(batch, error)
        else:
            if found is not None:
                self._known[batch] = found

    def _is_its_turn(self, batch: BatchId) -> bool:
        return asyncio.get_running_loop().time() >= self._again.get(batch, float("-inf"))

    def _put_off(self, batch: BatchId, error: Exception) -> None:
        """Said once, and tried again in a while."""
        why = str(error) if isinstance(error, EvalbusError | OSError) else repr(error)
        log.error("archive.failed", batch=batch, why=why)
        self._again[batch] = asyncio.get_running_loop().time() + _AGAIN

    async def _tend(self, info: BatchInfo) -> int:
        batch = info.spec.batch
        try:
            due = await self._archivist.due(info)
            if not due or not self._is_its_turn(batch):
                if due <= _BEHIND:
                    self._behind.discard(batch)
                if not due:  # one that fails lets its lease lapse: another's disk may have room
                    await self._archivist.keep(info)
                return 0
            if due > _BEHIND:  # also where another archivist has it: each planner admits, and only one archives
                self._behind.add(batch)
            await self._archivist.one(info)
        except Taken:
            self._again[batch] = asyncio.get_running_loop().time() + _LOOK_EVERY
        except Exception as error:  # also an entry that no client of ours writes, and that cannot be spelt
            self._put_off(batch, error)
            self._behind.discard(batch)  # the batch comes first
        else:
            return 1
        return 0


class Beside:
    """A role, with an archivist beside it for as long as the role runs."""

    def __init__(self, role: _Stoppable, following: Following) -> None:
        """Starts nothing yet."""
        self._role, self._following = role, following

    def stop(self) -> None:
        """Both, after what they are at."""
        self._role.stop()

    async def run(self) -> None:
        """Raises what the role raises."""
        following = asyncio.create_task(self._following.run())
        try:
            await self._role.run()
        finally:
            self._following.stop()
            await following


async def archive_batch(bus: ServerBus, name: BatchId, archivist: Archivist, *, follow: bool) -> list[str]:
    """Archive what is due of a batch, or of its partitions; what was done, a line each.

    `follow`: until it has ended. Raises InputError, also while another archivist has it; ViolationError.
    """
    whole = await whole_of(bus, name)
    if whole is None:
        await info_of(bus, name)  # raises, with the nearest names
        raise AssertionError("unreachable")
    if whole.info.imported:
        raise only_for_looking(name)
    await check_goes_on(bus, whole.parts, archivist.archive)
    counts = dict.fromkeys(whole.batches, 0)
    try:
        while True:
            ended = whole.has_ended
            for info in whole.parts:
                counts[info.spec.batch] += await archivist.tend(info)
            if ended or not follow:
                break
            await asyncio.sleep(_LOOK_EVERY)
            whole = await whole_of(bus, name) or whole
    finally:
        for info in whole.parts:
            with contextlib.suppress(EvalbusError):
                await archivist.let_go(info)
    return [await _line(bus, info, counts.get(info.spec.batch, 0), archivist.archive) for info in whole.parts]


async def _line(bus: ServerBus, info: BatchInfo, written: int, archive: Path) -> str:
    batch = info.spec.batch
    at = await bus.of(batch)
    standing = await standing_of(at.link, at.keys(batch))
    left = int(await at.link.command("XLEN", at.keys(batch).history))
    many = "1 segment" if standing.number == 1 else f"{standing.number:,} segments"
    return (
        f"{batch}: {many} with {standing.entries:,} entries in {SegmentFiles.of(archive, info).directory}, "
        f"{written:,} of them written now; {left:,} entries are on the server"
    )
