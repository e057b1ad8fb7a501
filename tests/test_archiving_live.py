"""Archiving a history while its batch runs: archive and stream together are what the stream alone would have been.

Whoever dies in between loses nothing and doubles nothing; whoever comes late is refused, and that is recorded; and what
is not there, or is not what was written, is said in one line.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import zstandard
from rich.console import Console

from bus import failpoints
from bus.acl import AclRole, rule, user_name
from bus.archived import Standing, began_ms, claim, retire_segment, standing_of
from bus.chain import EMPTY_HEAD
from bus.connection import Endpoint
from bus.errors import EvalbusError, InputError, ViolationError
from bus.failpoints import Order
from bus.fitness import check_fit
from bus.port import BatchInfo, Ref
from bus.redis_bus import RedisBus
from bus.rights import ARCHIVING, COMMANDS
from bus.server import unix_url
from bus.target import Target
from bus.types import BatchId, ConsumerId, Digest, Gen, LeaseId, Plane
from tests.archiving import LONG, SEGMENT, archivist_of, info_of, length
from tests.batches import Batch
from tests.fleet import Stage, case, eventually
from tests.histories import exported, whole_history
from tests.limits import FIRST_BUDGET
from tests.servers import RealServer
from workers.explaining.reading import read_file, read_server
from workers.histories.archivist import Archivist, Taken
from workers.histories.exporting import export_batch, exported_lines
from workers.histories.following import Following, archive_batch
from workers.histories.history_files import reading, writing
from workers.histories.keeping import parse_rule
from workers.histories.pruning import make_plan, prune
from workers.histories.replaying import replay_batch, replay_file
from workers.histories.segments import SegmentFiles
from workers.reporting.gather import fetched, gathered
from workers.results.whole import whole_of
from workers.runtime import SystemRuntime
from workers.watching.tail import Tail


@dataclass(frozen=True, slots=True)
class Archived:
    """A batch, closed, and the directory to which the older part of its history went."""

    batch: Batch
    info: BatchInfo
    place: Path
    before: list[bytes]
    """What its export was before anything was archived."""

    @property
    def files(self) -> list[Path]:
        """The segments, in order."""
        return sorted((self.place / "live" / "b.segments").iterdir())

    async def standing(self) -> Standing:
        """How far it is archived."""
        return await standing_of(self.batch.bus.link, self.batch.keys)

    async def export(self) -> list[bytes]:
        """Archive and stream together."""
        return [line async for line in exported_lines(self.batch.bus, self.batch.name, self.info, self.place)]


async def lapse(batch: Batch) -> None:
    """The time has passed for which the archive was held."""
    await batch.wire.call("HSET", batch.keys.batch_row, "archive.until", 0)


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """A batch with every fence in its path, of which nothing has happened yet."""
    one = await Batch.open(server.address(), limits=FIRST_BUDGET)
    yield one
    await one.aclose()


@pytest.fixture
async def archived(batch: Batch, tmp_path: Path) -> Archived:
    """It was played to its close, with deaths and late messages, and then archived."""
    before = await whole_history(batch)
    info, place = await info_of(batch), tmp_path / "archive"
    assert await archivist_of(batch, place).tend(info) > 3
    return Archived(batch, info, place, before)


# --- together ---------------------------------------------------------------------------------------------


async def test_archive_and_stream_are_the_export_byte_for_byte(archived: Archived) -> None:
    """Nothing is missing between them, nothing is there twice; and the row says how far the one goes."""
    assert await archived.export() == archived.before
    standing = await archived.standing()
    assert standing.number == len(archived.files) > 3
    assert standing.entries == standing.number * SEGMENT
    assert await length(archived.batch) < SEGMENT + 2
    in_files = [line for file in archived.files for line in plain(file)[1:-1]]
    assert in_files == archived.before[1 : 1 + standing.lines]


async def test_whatever_reads_a_history_reads_both(archived: Archived, tmp_path: Path) -> None:
    """Replay proves the same number; the words and the page about a run are those that they were."""
    batch, head = archived.batch, json.loads(archived.before[-1])
    found = await replay_batch(batch.bus, batch.name, head["head"], archive=archived.place)
    assert found.snapshot_id == head["snapshot"]["snapshot_id"]
    assert await export_batch(batch.bus, batch.name, tmp_path / "h.jsonl.zst", archived.place) == head["entries"]
    assert replay_file(tmp_path / "h.jsonl.zst", head["head"]).snapshot_id == found.snapshot_id
    told = await read_server(batch.bus, batch.name, "c1#1", archived.place)
    assert told.story == read_file(str(tmp_path / "h.jsonl.zst"), "c1#1").story
    with gathered(await fetched(batch.bus, batch.name, tmp_path, archived.place)) as report:
        assert report.facts.outcome.snapshot_id == found.snapshot_id


async def test_a_batch_goes_on_while_it_is_archived(batch: Batch, tmp_path: Path) -> None:
    """Each script writes behind what was trimmed, and the close is over rows: the snapshot is what replay derives."""
    archivist, info = archivist_of(batch, tmp_path), await info_of(batch)
    await batch.admit()
    for _ in batch.runs:
        await batch.scored()
        await archivist.tend(info)
    snapshot = await batch.closed()
    await archivist.tend(info)
    found = await replay_batch(batch.bus, batch.name, None, archive=tmp_path)
    assert (found.status, found.snapshot_id) == ("closed", snapshot.snapshot_id)
    assert (await standing_of(batch.bus.link, batch.keys)).number > 1


@pytest.mark.parametrize("read", [0, 1, 7, 30])
async def test_what_is_archived_under_a_reader_is_read_from_the_archive(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: int
) -> None:
    """It has read some of the stream, and the rest of that is gone when it goes on: no line twice, none left out."""
    monkeypatch.setattr("bus.history._AT_ONCE", 4)
    before = await whole_history(batch)
    info = await info_of(batch)
    lines = exported_lines(batch.bus, batch.name, info, tmp_path)
    found = [await anext(lines) for _ in range(read)]
    await archivist_of(batch, tmp_path).tend(info)
    found += [line async for line in lines]
    assert found == before


async def test_without_the_archive_the_directory_is_named(archived: Archived) -> None:
    """Half of a history would pass for all of it; whoever asks is told where the other half is."""
    batch = archived.batch
    where = re.escape(f"archived to {socket.gethostname()}:{archived.place} (name that directory: --archive DIR)")
    for reading_it in (
        exported(batch),
        replay_batch(batch.bus, batch.name, None),
        read_server(batch.bus, batch.name, "c1#1"),
    ):
        with pytest.raises(InputError, match=where):
            await reading_it


async def test_a_batch_that_is_not_archived_is_read_with_any_directory(batch: Batch, tmp_path: Path) -> None:
    """A script may name the directory always."""
    before = await whole_history(batch)
    info = await info_of(batch)
    assert [line async for line in exported_lines(batch.bus, batch.name, info, tmp_path)] == before


# --- files that are not what they were --------------------------------------------------------------------


def plain(file: Path) -> list[bytes]:
    """A segment's lines."""
    with reading(file) as lines:
        return list(lines)


def rewritten(file: Path, lines: list[bytes]) -> None:
    """Other content under the same name."""
    with writing(file) as out:
        out.write(b"".join(lines))


def _missing(files: list[Path]) -> None:
    files[1].unlink()


def _edited(files: list[Path]) -> None:
    rewritten(files[1], [line.replace(b'"commit"', b'"reject"') for line in plain(files[1])])


def _dropped(files: list[Path]) -> None:
    first, _, *rest = plain(files[1])
    rewritten(files[1], [first, *rest])


def _unclosed(files: list[Path]) -> None:
    rewritten(files[1], plain(files[1])[:-1])


def _cut(files: list[Path]) -> None:
    files[1].write_bytes(files[1].read_bytes()[:-40])


def _swapped(files: list[Path]) -> None:
    first, second = files[0].read_bytes(), files[1].read_bytes()
    files[0].write_bytes(second)
    files[1].write_bytes(first)


def _foreign(files: list[Path]) -> None:
    rewritten(files[1], [line.replace(b'"batch":"b"', b'"batch":"c"') for line in plain(files[1])])


def _another_life(files: list[Path]) -> None:
    opening, *rest = plain(files[1])
    rewritten(files[1], [re.sub(rb'"incarnation":"[^"]*"', b'"incarnation":"other"', opening), *rest])


def _no_segment(files: list[Path]) -> None:
    rewritten(files[1], [b"{}\n"])


def _closed_otherwise(files: list[Path]) -> None:
    *lines, closing = plain(files[1])
    rewritten(files[1], [*lines, closing.replace(b'"entries":5', b'"entries":6')])


SPOILT: dict[str, tuple[Callable[[list[Path]], None], type[EvalbusError], str]] = {
    "missing": (_missing, InputError, r"segment 2 of the history of batch 'b' is missing \(it was archived to \S+:"),
    "edited": (_edited, ViolationError, r"was edited, or is another segment: the chain names"),
    "a line dropped": (_dropped, ViolationError, r"was edited, or is another segment: the chain names"),
    "without its end": (_unclosed, InputError, r"is truncated: its closing line is missing"),
    "cut": (_cut, InputError, r"is truncated: the archive was cut off"),
    "swapped": (_swapped, ViolationError, r"is not segment 2: it is segment 1"),
    "foreign": (_foreign, InputError, r"is a segment of another batch: 'c' on plane live"),
    "of another life": (_another_life, InputError, r"is a segment of another batch: .* declared as other"),
    "something else": (_no_segment, InputError, r"is no segment of a history"),
    "closed otherwise": (_closed_otherwise, ViolationError, r"its closing line is not the one that was written"),
}


@pytest.mark.parametrize("what", SPOILT)
async def test_a_segment_that_is_not_what_was_written_is_named(archived: Archived, what: str) -> None:
    """In one line, with its file; exit 2 for what cannot be read, 5 for what is not true."""
    spoil, kind, words = SPOILT[what]
    spoil(archived.files)
    with pytest.raises(kind, match=words) as caught:
        await archived.export()
    assert "000002-" in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_chain_that_somebody_writes_anew_is_not_the_one_that_the_server_names(archived: Archived) -> None:
    """All files edited in accord prove nothing: the last digest stands in the row."""
    file = archived.files[-1]
    *lines, closing = plain(file)
    edited = [line.replace(b"c1#1", b"c9#1") for line in lines]
    digest = hashlib.sha256(b"".join(edited)).hexdigest()
    said = json.loads(closing) | {"digest": digest}
    rewritten(file, [*edited, json.dumps(said, separators=(",", ":")).encode() + b"\n"])
    with pytest.raises(ViolationError, match="the chain names"):
        await archived.export()


async def test_an_archive_that_lacks_a_segment_is_not_gone_on_with(batch: Batch, tmp_path: Path) -> None:
    """Neither in another directory nor behind a gap: found before anything is written or claimed."""
    await batch.admit()
    await batch.scored()
    info = await info_of(batch)
    first = archivist_of(batch, tmp_path / "one", segment=2)
    await first.tend(info)
    await first.let_go(info)
    await batch.scored()
    with pytest.raises(InputError, match=r"two/live/b\.segments/.* is missing \(it was archived to .+/one:"):
        await archivist_of(batch, tmp_path / "two", segment=2).tend(info)
    assert not (tmp_path / "two").exists()
    assert await archivist_of(batch, tmp_path / "one", segment=2).tend(info) > 0


# --- two archivists ---------------------------------------------------------------------------------------


async def test_a_second_archivist_stands_by_and_is_told_by_whom(batch: Batch, tmp_path: Path) -> None:
    """Its asking is no decision about the batch, so nothing is recorded; when the first lets go, it goes on."""
    await batch.admit()
    await batch.scored()
    info = await info_of(batch)
    first, second = (archivist_of(batch, tmp_path, segment=2) for _ in range(2))
    assert await first.tend(info) > 0
    await batch.scored()
    there = await length(batch)
    with pytest.raises(Taken, match=rf"'b' is being archived by {re.escape(socket.gethostname())}, process \d+"):
        await second.tend(info)
    assert await length(batch) == there
    await first.let_go(info)
    assert await second.tend(info) > 0
    await batch.scored()
    with pytest.raises(Taken):
        await first.tend(info)


async def test_an_archivist_that_was_replaced_is_refused_and_that_is_recorded(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept between its file and its trim, and another took over: what it would trim is not in the chain."""
    await batch.admit()
    for _ in range(2):
        await batch.scored()
    info = await info_of(batch)
    slow, quick = archivist_of(batch, tmp_path, segment=3), archivist_of(batch, tmp_path, segment=4)

    async def meanwhile(point: str) -> None:
        if point == "archive.read" and not (await standing_of(batch.bus.link, batch.keys)).number:
            monkeypatch.setattr("workers.histories.archivist._point", _no_point)
            await lapse(batch)
            assert await quick.tend(info) > 0

    monkeypatch.setattr("workers.histories.archivist._point", meanwhile)
    with pytest.raises(InputError, match="segment 1 of the history of batch 'b' was refused: another archivist has"):
        await slow.tend(info)
    standing = await standing_of(batch.bus.link, batch.keys)
    assert standing.entries == 4 * standing.number
    [refusal] = await batch.history("run.archive")
    assert refusal.verbs == ("run.archive reject stale_archivist",)
    assert (await batch.refusals())["stale_archivist"] == 1
    found = await replay_batch(batch.bus, batch.name, None, archive=tmp_path)
    assert dict(found.refusals)["stale_archivist"] == 1


async def _no_point(point: str) -> None:
    """Nothing happens here."""


async def test_only_the_next_segment_is_trimmed(batch: Batch, tmp_path: Path) -> None:
    """By its holder too: not one that begins or ends elsewhere, nor one behind another chain, nor the whole stream."""
    await batch.admit()
    for _ in range(2):
        await batch.scored()
    info, files = await info_of(batch), SegmentFiles.of(tmp_path, await info_of(batch))
    archivist = archivist_of(batch, tmp_path, segment=4)
    assert await archivist.tend(info) > 0
    await batch.scored()
    standing = await standing_of(batch.bus.link, batch.keys)
    last = files.read(standing.number, standing.digest, [])
    decision = await claim(batch.bus, batch.name, archivist._id, "test", "here", LONG)
    epoch = int(decision.answer["epoch"])
    entries = [entry.decode() for entry, _ in await batch.wire.call("XRANGE", batch.keys.history, "-", "+")]
    right = replace(
        last, number=last.number + 1, previous=last.digest, digest=Digest("e" * 64),
        first=entries[0], last=entries[1], entries=2,
    )  # fmt: skip
    there = await length(batch)
    assert len(entries) > 2
    for wrong in (
        replace(right, last=entries[-1], entries=len(entries)),
        replace(right, number=right.number + 1),
        replace(right, previous=Digest("f" * 64)),
        replace(right, first=entries[1]),
        replace(right, last="0-1"),  # type: ignore[arg-type]
        replace(right, last="not an entry"),  # type: ignore[arg-type]
    ):
        refused = await retire_segment(batch.bus, batch.name, archivist._id, epoch, wrong)
        assert refused.reason == "not_next"
    assert (await retire_segment(batch.bus, batch.name, archivist._id, epoch + 1, right)).reason == "stale_archivist"
    assert await length(batch) == there + 7  # the refusals are recorded
    assert await standing_of(batch.bus.link, batch.keys) == replace(standing, place="here", by="test")
    taken = await retire_segment(batch.bus, batch.name, archivist._id, epoch, right)
    assert (taken.applied, taken.answer["removed"]) == (True, 2)
    again = await retire_segment(batch.bus, batch.name, archivist._id, epoch, right)
    assert again.verb == "duplicate"


async def test_of_several_planners_one_archives_and_another_takes_over(batch: Batch, tmp_path: Path) -> None:
    """Each has an archivist beside it: the first one ends, and the history goes on being archived, into one chain."""
    await batch.admit()
    first, second = (Following(batch.bus, archivist_of(batch, tmp_path, segment=3), None) for _ in range(2))
    tasks = [asyncio.create_task(one.run()) for one in (first, second)]
    for number, one in enumerate((first, second)):
        await batch.scored()
        await eventually(lambda: _is_short(batch, 4), "the history to be archived")
        one.stop()
        await tasks[number]
    found = await replay_batch(batch.bus, batch.name, None, archive=tmp_path)
    assert sum(found.bins.values()) == 2
    assert await batch.batch_field("archive.until") != "0"


async def _is_short(batch: Batch, most: int) -> bool:
    return await length(batch) < most


# --- trouble ----------------------------------------------------------------------------------------------


async def test_a_full_disk_loses_nothing_and_is_said(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is trimmed, nothing is left lying there; with room again it goes on."""
    before = await whole_history(batch)
    info, archivist = await info_of(batch), archivist_of(batch, tmp_path)
    there = await length(batch)
    real = os.fsync

    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"b\.segments: segment 1 cannot be written: No space left on device"):
        await archivist.tend(info)
    monkeypatch.setattr(os, "fsync", real)
    assert await length(batch) == there
    assert list((tmp_path / "live" / "b.segments").iterdir()) == []
    assert await archivist.tend(info) > 3
    assert [line async for line in exported_lines(batch.bus, batch.name, info, tmp_path)] == before


async def test_an_entry_that_cannot_be_spelt_holds_nobody_up(batch: Batch, tmp_path: Path) -> None:
    """Some other client's: the archivist says so and tries again later; it neither dies nor has the planner wait."""
    await batch.admit()
    held = await batch.claimed()
    assert (await batch.bus.append(held.ref, EMPTY_HEAD, 1, ["said"])).applied
    await batch.wire.call("DEL", batch.keys.transcript(held.ref.run, 0))  # what the history names is gone
    stored = b"said"  # and what stands there instead is no event
    await batch.wire.call("RPUSH", batch.keys.transcript(held.ref.run, 0), stored)
    for _ in range(4 * SEGMENT):
        await batch.bus.claim(held.entry, batch.lease(), ConsumerId("nobody"))
    following = Following(batch.bus, archivist_of(batch, tmp_path), None)
    with structlog.testing.capture_logs() as said:
        task = asyncio.create_task(following.run())
        await eventually(lambda: _said(said, "archive.failed", task), "the archivist to give up for now")
        assert not task.done()
        assert not following.is_behind(batch.name)
        following.stop()
        await task
    assert (await standing_of(batch.bus.link, batch.keys)).number == 0


async def _said(logged: list[MutableMapping[str, Any]], event: str, by: asyncio.Task[None]) -> bool:
    return by.done() or any(line["event"] == event for line in logged)


async def test_what_cannot_be_read_back_is_not_trimmed(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte on the disk is another than was written."""
    await whole_history(batch)
    info, there = await info_of(batch), await length(batch)

    def damage(file: Path) -> None:
        packed = bytearray(file.read_bytes())
        packed[len(packed) // 2] ^= 1
        file.write_bytes(packed)

    monkeypatch.setattr("workers.histories.segment_writing._forget_cached", damage)
    with pytest.raises(EvalbusError, match="000001-"):
        await archivist_of(batch, tmp_path).tend(info)
    assert await length(batch) == there


POINTS = {
    "before its lease": Order("before", ("run.archive_claim",), "kill"),
    "with its lease": Order("after", ("run.archive_claim",), "kill"),
    "with a file that has no name": Order("before", ("archive.write",), "kill"),
    "with a segment that nothing counts": Order("before", ("archive.read",), "kill"),
    "before the trim": Order("before", ("run.archive",), "kill"),
    "behind the trim": Order("after", ("run.archive",), "kill"),
}


@pytest.mark.parametrize("where", POINTS)
async def test_an_archivist_that_is_killed_loses_nothing_and_doubles_nothing(
    batch: Batch, server: Target, tmp_path: Path, where: str
) -> None:
    """By SIGKILL, at each step; whoever comes next goes on."""
    before = await whole_history(batch)
    info, orders = await info_of(batch), tmp_path / "orders"
    orders.mkdir()
    assert server.path is not None
    words = ["archive", "b", str(tmp_path / "archive"), "--segment", str(SEGMENT), "--url", unix_url(Path(server.path))]
    process = await asyncio.create_subprocess_exec(  # it begins when it has its order
        "sh", "-c", 'read -r _ && exec "$0" "$@"', sys.executable, "-m", "workers.cli", *words,
        env=os.environ | {failpoints.ENVIRONMENT: str(orders)},
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    POINTS[where].place(orders, process.pid)
    _, said = await process.communicate(b"go\n")
    assert process.returncode == -signal.SIGKILL, said
    place = tmp_path / "archive"
    assert [line async for line in exported_lines(batch.bus, batch.name, info, place)] == before
    await lapse(batch)
    assert await archivist_of(batch, place).tend(info) > 0
    assert [line async for line in exported_lines(batch.bus, batch.name, info, place)] == before
    assert not [file for file in (place / "live" / "b.segments").iterdir() if file.name.startswith(".")]


async def test_a_planners_user_may_archive(any_real_server: RealServer, tmp_path: Path) -> None:
    """And is found fit for it; a worker's is not."""
    batch = await Batch.open(any_real_server.target.address(), limits=FIRST_BUDGET)
    with any_real_server.client() as client:
        client.flushall()
        await batch.bus.create(batch.spec)
        before = await whole_history(batch)
        for role in (AclRole.PLANNER, AclRole.WORKER):
            client.execute_command("ACL", "SETUSER", *rule(role, Plane.LIVE, "open-sesame").split())
        users = [
            replace(any_real_server.target, username=user_name(role, Plane.LIVE), password="open-sesame")
            for role in (AclRole.PLANNER, AclRole.WORKER)
        ]
        bus = RedisBus(Endpoint(users[0]), SystemRuntime())
        try:
            await check_fit(users[0], commands=(*COMMANDS, *ARCHIVING))
            with pytest.raises(EvalbusError, match=r"may not call XLEN, XTRIM"):
                await check_fit(users[1], commands=(*COMMANDS, *ARCHIVING))
            info = await info_of(batch)
            assert await Archivist(bus, tmp_path, SEGMENT).tend(info) > 3
            assert [line async for line in exported_lines(batch.bus, batch.name, info, tmp_path)] == before
        finally:
            await bus.aclose()
            await batch.aclose()
            client.flushall()
            client.execute_command("ACL", "DELUSER", *(str(user.username) for user in users))


# --- prune ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", ["the same directory", "another one"])
async def test_a_prune_makes_one_file_of_both(archived: Archived, tmp_path: Path, named: str) -> None:
    """It finds the segments where it is sent, or where the row says; they go when they are in the one file."""
    directory = archived.place if named == "the same directory" else tmp_path / "pruned"
    bus, screen = archived.batch.bus, io.StringIO()
    plan = await make_plan(bus, [], [parse_rule("last=0")])
    await prune(bus, plan, directory, Console(file=screen))
    file = directory / "live" / "b.jsonl.zst"
    assert plain(file) == archived.before
    assert "1 pruned" in screen.getvalue()
    assert not (archived.place / "live" / "b.segments").exists()
    assert await archived.batch.wire.call("KEYS", "evb:{live.0}:b:*") == []


async def test_a_prune_that_does_not_find_the_segments_keeps_the_batch(archived: Archived, tmp_path: Path) -> None:
    """What is on the server is only the end of it."""
    archived.place.rename(tmp_path / "moved")
    bus = archived.batch.bus
    plan = await make_plan(bus, [archived.batch.name], [])
    with pytest.raises(InputError, match=r"was archived to .+/archive \(name that directory: --archive DIR"):
        await prune(bus, plan, tmp_path / "pruned", Console(file=io.StringIO()))
    assert (await bus.all_batches())[archived.batch.name] == "closed"


# --- the commands -----------------------------------------------------------------------------------------


async def test_the_command_says_what_it_did_and_what_is_left(batch: Batch, tmp_path: Path) -> None:
    """Asked again, it has nothing to do."""
    await whole_history(batch)
    [line] = await archive_batch(batch.bus, batch.name, archivist_of(batch, tmp_path), follow=True)
    count = (await standing_of(batch.bus.link, batch.keys)).number
    left = await length(batch)
    many = f"{count} segments with {count * SEGMENT} entries in {tmp_path}/live/b.segments"
    assert line == f"b: {many}, {count} of them written now; {left} entries are on the server"
    [line] = await archive_batch(batch.bus, batch.name, archivist_of(batch, tmp_path), follow=False)
    assert ", 0 of them written now;" in line
    with pytest.raises(InputError, match="no batch 'bb' on this server; did you mean b"):
        await archive_batch(batch.bus, BatchId("bb"), archivist_of(batch, tmp_path), follow=False)
    whole = await whole_of(batch.bus, batch.name)
    assert whole is not None


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A place of these tests' own."""
    with Stage.opened(tmp_path_factory.mktemp("archiving")) as one:
        yield one


RUNS = 1_500


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
async def test_the_server_holds_a_bounded_part_of_a_history_that_grows(stage: Stage) -> None:
    """Over a thousand runs, in segments of a few hundred entries; replay over both gives the snapshot of the close."""
    suite = stage.suite([case(f"c{number}") for number in range(RUNS)], concurrency=32)
    lengths: list[int] = []
    async with stage.watch("b") as watch:
        command = stage.start(
            "run", suite, "--workers", 1, "--scorers", 1, "--batch", "b", "--json", "out.json",
            "--archive", "archive", "--segment", 300,
        )  # fmt: skip
        keys = watch.bus.keys(watch.batch)

        async def ended() -> bool:
            over = command.process.poll() is not None  # asked first: the last length is that of the end
            lengths.append(int(await watch.bus.link.command("XLEN", keys.history)))
            return over

        await eventually(ended, "the run to end")
        assert command.done().code == 0, command.done().err
        standing = await standing_of(watch.bus.link, keys)
        result = json.loads((stage.root / "out.json").read_text())
        assert standing.entries > 4 * RUNS
        # What is due when no more runs are admitted, what those in flight add, and what came since the last look.
        assert max(lengths) < standing.entries / 3
        assert lengths[-1] < 360
        found = await replay_batch(watch.bus, watch.batch, None, archive=stage.root / "archive")
        assert (found.snapshot_id, sum(found.bins.values())) == (result["snapshot_id"], RUNS)


@pytest.mark.process
def test_a_directory_that_cannot_be_is_refused_before_anything_is_spent(stage: Stage) -> None:
    """Inside the suite it would change the suite; where a file is, there is no directory."""
    suite = stage.suite([case("one")], directory="small")
    (stage.root / "file").write_text("")
    for place, words in ((suite / "archive", "would be part of its digest"), ("file", "no history can be archived")):
        done = stage.run("run", suite, "--archive", place)
        assert (done.code, words in done.complaint) == (2, True), done.err


def test_a_segment_is_compressed(archived: Archived) -> None:
    """With a checksum of its own: a bad disk is told from an edit."""
    head = archived.files[0].read_bytes()[:64]
    assert zstandard.get_frame_parameters(head).has_checksum


async def test_who_watches_sees_when_the_history_began_and_its_newest_refusals(batch: Batch, tmp_path: Path) -> None:
    """The first entry is on a disk by then."""
    await whole_history(batch)
    began = await began_ms(batch.bus.link, batch.keys)
    early, late = Tail(batch.bus.link, batch.keys), Tail(batch.bus.link, batch.keys)
    await early.advance(began + LONG)
    assert early.refusals
    await archivist_of(batch, tmp_path).tend(await info_of(batch))
    late_ref = Ref(batch.name, batch.runs[0], LeaseId("late"), Gen(1))
    assert (await batch.bus.seal(late_ref, EMPTY_HEAD, 1, "", "", "")).reason
    for tail in (early, late):
        await tail.advance(began + LONG)
        assert (tail.began_ms, tail.refusals[0].run) == (began, batch.runs[0])
        assert tail.since_ms >= began
