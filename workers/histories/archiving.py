"""The archive of a batch: a file that was read back and checked before it had its name.

    write      beside its place, under a name that ends in `~.jsonl.zst`, which is no batch's
    check      every decision is derived again, from the file as it lies on the disk; head and snapshot are the server's
    settle     it is moved to its place, over nothing but an earlier state of the same history

Whatever is under an archive's own name is whole and true, and nothing but it is ever relied on. One prune at a time
works in a directory; what one that was killed has left there, the next one removes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from bus.errors import InputError, ViolationError
from bus.port import BatchInfo
from bus.redis_bus import RedisBus
from bus.replay.replayed import Replay, Replayed
from bus.retiring import Archived
from bus.tombstones import Tombstone
from bus.types import Digest, EntryId
from workers.histories.exporting import exported_lines
from workers.histories.history_files import LONGEST_LINE, check_target, reading, writing

__all__ = ["archive", "directory_of_its_own"]

_TICK = 5_000  # entries between two looks at whether somebody wants to stop
_CHAIN = slice(-67, -3)  # where the chain stands in a line: before `"}` and the newline
_BESIDE = "~.jsonl.zst"


@contextlib.contextmanager
def directory_of_its_own(directory: Path) -> Iterator[None]:
    """Make it, and keep other prunes out meanwhile. Raises InputError, also when there is another.

    The lock is the directory's own, so it leaves no file, and a process that is killed lets go of it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        held = os.open(directory, os.O_RDONLY)
    except OSError as error:
        problem = f"cannot be made: {error.strerror}"
        raise InputError(problem, file=directory, remedy="name another --archive") from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(held)
        raise InputError("another prune is at work here", file=directory, remedy="wait for it") from None
    except OSError:  # a file system without locks
        os.close(held)
        held = -1
    try:
        if held >= 0:
            for left in (*directory.glob(f"*{_BESIDE}"), *directory.glob(".evalbus-*.tmp")):
                left.unlink(missing_ok=True)
        yield
    finally:
        if held >= 0:
            os.close(held)


async def archive(bus: RedisBus, info: BatchInfo, place: Path, segments: Path | None = None) -> Archived:
    """Write a batch's history to `place`, checked. Raises InputError; ViolationError for one that is not true.

    `segments`: the directory to which it was archived while the batch ran, if it was.

    What was at `place` before must be an earlier state of this very history: another batch may have had the name.
    """
    name = info.spec.batch
    beside = place.with_name(f"{name}{_BESIDE}")
    check_target(place)
    last = b""
    with writing(beside) as out:
        async for line in exported_lines(bus, name, info, segments):
            out.write(line)
            last = line
    found, newest = await _replayed(beside)
    server = await bus.counters(name)
    for what, here, there in (
        ("batch", found.batch, name),
        ("plane", found.plane, bus.plane.value),
        ("head", found.head, json.loads(last)["head"]),
        ("status", found.status, server.status.value),
        # One that ended below its quorum has no number, and so no snapshot in its row.
        ("snapshot", found.snapshot_id, server.snapshot_id or found.snapshot_id),
    ):
        if here != there:
            raise ViolationError(f"{beside}: its {what} is {here}, on the server it is {there}")
    await _settle(beside, place, found)
    tombstone = Tombstone(
        file=str(place.resolve()),
        entries=found.entries,
        head=Digest(found.head),
        snapshot_id=found.snapshot_id or "",
        status=found.status,
    )
    return Archived(name, info.incarnation, newest, tombstone)


async def _replayed(file: Path) -> tuple[Replayed, EntryId]:
    """What the file comes to, and its last entry's id."""
    replay = Replay(str(file))
    async for raw in _lines(file):
        replay.feed(raw)
    return replay.finish(), EntryId(replay.last)


async def _lines(file: Path) -> AsyncIterator[bytes]:
    with reading(file) as lines:
        count = 0
        while raw := lines.readline(LONGEST_LINE):
            yield raw
            count += 1
            if count % _TICK == 0:
                await asyncio.sleep(0)  # for a Ctrl-C to get through


# --- the file ---------------------------------------------------------------------------------------------


async def _settle(beside: Path, place: Path, found: Replayed) -> None:
    """Move the checked file to its name. Raises InputError when another history is there."""
    try:
        if place.exists() and not await _is_earlier_state(place, beside):
            raise InputError(
                f"another history is there, which is no earlier state of batch {found.batch!r}",
                file=place,
                remedy="name another --archive, or move it away",
            )
        beside.replace(place)
        directory = os.open(place.parent, os.O_RDONLY)
        try:
            os.fsync(directory)  # the new name too must stand before the batch goes
        finally:
            os.close(directory)
    except OSError as error:
        raise InputError(f"cannot be put there: {error.strerror}", file=place) from error


async def _is_earlier_state(old: Path, new: Path) -> bool:
    """Whether the one history goes on where the other ends: its chain, up to there, is the other's head."""
    last = b""
    try:
        async for raw in _lines(old):
            last = raw
        said = json.loads(last)
        entries, head = said["entries"], said["head"]
    except (InputError, ValueError, KeyError, TypeError):  # damaged, or none: not ours to overwrite
        return False
    at = 0
    async for raw in _lines(new):
        if at == entries:
            return bool(raw[_CHAIN].decode("ascii", "replace") == head)
        at += 1
    return False
