"""Several archivists of one batch: one archives, the others stand by at little cost, and not for long when it dies."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import structlog

from bus.archived import Segment, standing_of
from bus.errors import InputError
from bus.server import unix_url
from bus.target import Target
from tests.archiving import archivist_of, info_of, length
from tests.batches import Batch
from tests.fleet import eventually
from tests.limits import FIRST_BUDGET
from tests.soak import soaked
from workers.histories.archive_place import check_archive, probe
from workers.histories.archivist import Archivist, Taken
from workers.histories.following import Following
from workers.histories.history_files import reading
from workers.histories.segments import SegmentFiles

QUICK = 200  # ms


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """A batch whose runs wait to be claimed."""
    one = await Batch.open(server.address(), runs=6, limits=FIRST_BUDGET)
    await one.admit()
    yield one
    await one.aclose()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file of an archive was read."""
    read: Counter[str] = Counter()
    real: Callable[[Any], AbstractContextManager[BinaryIO]] = reading

    def counted(file: Path) -> AbstractContextManager[BinaryIO]:
        read[file.name] += 1
        return real(file)

    monkeypatch.setattr("workers.histories.segments.reading", counted)
    return read


async def until_of(batch: Batch) -> int:
    """Until when the archive is held, by the server's clock in ms."""
    return int(await batch.batch_field("archive.until") or 0)


async def now_of(batch: Batch) -> int:
    """The server's clock in ms."""
    seconds, micros = await batch.wire.call("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


# --- standing by ------------------------------------------------------------------------------------------


async def test_who_stands_by_reads_each_segment_once(batch: Batch, tmp_path: Path, opened: Counter[str]) -> None:
    """It looks several times a second while something is due; a file that is another by then is read again."""
    info = await info_of(batch)
    first, second = (archivist_of(batch, tmp_path, segment=2) for _ in range(2))
    await batch.scored()
    assert await first.tend(info) > 1
    known: set[str] = set()
    for _ in range(2):
        await batch.scored()
        opened.clear()
        for _ in range(3):
            with pytest.raises(Taken):
                await second.tend(info)
        there = {file.name for file in SegmentFiles.of(tmp_path, info).directory.iterdir()}
        assert opened == dict.fromkeys(there - known, 1)
        known = there
        assert await first.tend(info) > 0
    oldest = min(SegmentFiles.of(tmp_path, info).directory.iterdir())
    os.utime(oldest, ns=(0, 0))
    await batch.scored()
    opened.clear()
    with pytest.raises(Taken):
        await second.tend(info)
    assert opened[oldest.name] == 1
    oldest.unlink()
    with pytest.raises(Exception, match="segment 1 of the history of batch 'b' is missing"):
        await second.tend(info)


async def test_who_holds_the_archive_renews_it_while_it_writes_and_while_nothing_is_due(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may take longer for one segment than a lease lasts, and a batch may be silent for longer."""
    info, archivist = await info_of(batch), archivist_of(batch, tmp_path, segment=2, lease_ms=QUICK)
    await batch.scored()
    written: list[int] = []

    async def slow(point: str) -> None:
        if point == "archive.read" and not written:
            await eventually(lambda: _renewed(batch, written), "the lease to be renewed while it writes")

    async def kept() -> bool:
        await archivist.keep(info)
        return await _renewed(batch, idle)

    monkeypatch.setattr("workers.histories.archivist._point", slow)
    assert await archivist.tend(info) > 1
    assert written
    idle: list[int] = []
    await eventually(kept, "the lease to be renewed while nothing is due")
    await archivist.let_go(info)
    assert await until_of(batch) <= await now_of(batch)


async def _renewed(batch: Batch, seen: list[int]) -> bool:
    """Whether the lease has gone on for two of its length since this was asked first."""
    seen.append(await until_of(batch))
    return seen[-1] - seen[0] > 2 * QUICK


async def test_another_goes_on_when_the_lease_of_one_that_vanished_has_passed(batch: Batch, tmp_path: Path) -> None:
    """It let nothing go. The one that goes on waits for its lease, which is of a few seconds, and for nothing else."""
    info = await info_of(batch)
    gone = Archivist(batch.bus, tmp_path, 2)
    await batch.scored()
    assert await gone.tend(info) > 0
    assert 0 < await until_of(batch) - await now_of(batch) <= 5_000
    await gone.let_go(info)
    gone = archivist_of(batch, tmp_path, segment=2, lease_ms=QUICK)
    await batch.scored()
    assert await gone.tend(info) > 0
    await batch.scored()
    following = Following(batch.bus, archivist_of(batch, tmp_path, segment=2), None)
    task = asyncio.create_task(following.run())
    await eventually(lambda: _is_short(batch, 4), "the next one to archive")
    following.stop()
    await task
    assert await until_of(batch) <= await now_of(batch)  # it let go


async def _is_short(batch: Batch, most: int) -> bool:
    return await length(batch) < most


class _Full(Archivist):
    """Its disk is full."""

    async def _written(self, *_: Any) -> Segment:  # noqa: ANN401 - whatever it is given
        raise InputError("no space left")


async def test_another_goes_on_for_one_that_fails(batch: Batch, tmp_path: Path) -> None:
    """It lives, and looks at the batch again and again; only its disk is full, and that of the other is not."""
    await batch.scored()
    both = [
        Following(batch.bus, one, None)
        for one in (_Full(batch.bus, tmp_path, 2, QUICK), archivist_of(batch, tmp_path, segment=2))
    ]
    tasks = [asyncio.create_task(both[0].run())]
    with structlog.testing.capture_logs() as said:
        await eventually(lambda: _said(said, "archive.failed"), "the first one to fail")
    tasks.append(asyncio.create_task(both[1].run()))
    await eventually(lambda: _is_short(batch, 4), "the other one to archive")
    for one, task in zip(both, tasks, strict=True):
        one.stop()
        await task


async def _said(logged: list[MutableMapping[str, Any]], event: str) -> bool:
    return any(line["event"] == event for line in logged)


@soaked
@pytest.mark.process
async def test_after_a_kill_another_goes_on_within_six_seconds(batch: Batch, server: Target, tmp_path: Path) -> None:
    """By SIGKILL, with what is due waiting."""
    assert server.path is not None
    await batch.scored()
    words = ["archive", "b", str(tmp_path), "--segment", "2", "--follow", "--url", unix_url(Path(server.path))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers.cli", *words, stdout=subprocess.DEVNULL
    )
    await eventually(lambda: _is_short(batch, 4), "the first one to archive")
    number = (await standing_of(batch.bus.link, batch.keys)).number
    process.send_signal(signal.SIGKILL)
    await process.wait()
    killed = await now_of(batch)
    await batch.scored()
    following = Following(batch.bus, archivist_of(batch, tmp_path, segment=2), None)
    task = asyncio.create_task(following.run())
    await eventually(lambda: _is_short(batch, 4), "the next one to archive")
    assert await now_of(batch) - killed < 6_000
    following.stop()
    await task
    assert (await standing_of(batch.bus.link, batch.keys)).number > number


# --- beside each other ------------------------------------------------------------------------------------


async def test_two_that_begin_at_once_do_not_stop_each_other(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tries whether the directory can be written to; the other has taken over, and clears what others began."""
    files, real = SegmentFiles.of(tmp_path, await info_of(batch)), os.close
    files.make()

    def meanwhile(file: int) -> None:
        real(file)
        files.clear_unfinished()

    monkeypatch.setattr("workers.histories.archive_place.os.close", meanwhile)
    probe(files.directory)
    files.make()
    assert check_archive(files.directory) == files.directory.resolve()
    assert list(files.directory.iterdir()) == []


async def test_a_batch_that_cannot_be_read_holds_up_no_other(
    batch: Batch, server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its declaration is another release's, say: that is in the log, once in a while, and the next one is archived."""
    other = await Batch.open(server.address(), name="a")
    await other.wire.call("HSET", other.keys.batch_row, "spec", "{}")
    await batch.scored()
    monkeypatch.setattr("workers.histories.following._LOOK_EVERY", 0.01)
    following = Following(batch.bus, archivist_of(batch, tmp_path, segment=2), None)
    with structlog.testing.capture_logs() as said:
        task = asyncio.create_task(following.run())
        await eventually(lambda: _over_or_short(task, batch), "the batch to be archived")
        assert not task.done()
        following.stop()
        await task
    assert [line["batch"] for line in said if line["event"] == "archive.failed"] == ["a"]
    assert not any(following.is_behind(one.name) for one in (other, batch))
    await other.aclose()


async def _over_or_short(task: asyncio.Task[None], batch: Batch) -> bool:
    return task.done() or await length(batch) < 4
