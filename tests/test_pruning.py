"""Pruning: a batch leaves the server only when its archive is known to be true, whole, and on the disk.

Whoever dies in between loses nothing: the batch is there, or its archive is. And what comes late, a worker that slept
through it all, finds nothing to write to.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from rich.console import Console

from bus.acl import AclRole, rule, user_name
from bus.calling import Command
from bus.chain import EMPTY_HEAD
from bus.errors import InputError, ReplyError, ServerUnfit, ViolationError
from bus.fitness import check_fit
from bus.keys import bell
from bus.link import Arguments, Link
from bus.port import Group, Held, NextRuns, Ref
from bus.redis_bus import RedisBus
from bus.retiring import Archived, clear, retire
from bus.rights import COMMANDS, PRUNING
from bus.scripts import Script, all_scripts
from bus.target import Target
from bus.tombstones import Tombstone
from bus.types import BatchId, Decision, Digest, Gen, LeaseId, Plane, Verb
from bus.wire import Address
from tests.batches import P1, W1, Batch, FixedDoor, one_over_another
from tests.fleet import Stage, case
from tests.histories import exported, whole_history
from tests.limits import FIRST_BUDGET
from tests.servers import RealServer
from tests.waiting import soon
from tests.walks import SPEC, steps
from workers.histories import archiving, pruning
from workers.histories.archiving import archive, directory_of_its_own
from workers.histories.history_files import reading, writing
from workers.histories.keeping import Ended, kept, parse_rule
from workers.histories.pruning import PruneOptions, make_plan, prune
from workers.histories.replaying import replay_file
from workers.runtime import SystemRuntime

T = TypeVar("T")

B = BatchId("b")
ALL = [parse_rule("last=0")]
WORD = "open-sesame"
DAY = 86_400_000  # ms


class Cut(BaseException):
    """The process is killed here. No `except Exception` sees it, as none would see a SIGKILL."""


@pytest.fixture
def address(server: Target) -> Address:
    """Where the server is."""
    return server.address()


@pytest.fixture
async def batch(address: Address) -> AsyncIterator[Batch]:
    """A batch that is open; its connections are let go at the end."""
    one = await Batch.open(address, runs=2)
    yield one
    await one.aclose()


async def ended(batch: Batch) -> Batch:
    """Every run scored, and the batch closed over them."""
    await batch.admit()
    for _ in batch.runs:
        await batch.sealed()
    return await rest_of(batch)


async def rest_of(batch: Batch) -> Batch:
    """Every sealed run scored, and the batch closed over them."""
    for _ in batch.runs:
        scoring = await batch.scoring()
        assert (await batch.bus.score(scoring.ref, scoring.judgement)).applied
    await batch.closed()
    return batch


async def pruned(bus: RedisBus, directory: Path, *names: str) -> str:
    """What `evalbus prune NAME …` says; without names, of all that have ended."""
    plan = await make_plan(bus, [BatchId(name) for name in names], [] if names else ALL)
    screen = io.StringIO()
    await prune(bus, plan, directory, Console(file=screen))
    return screen.getvalue()


async def keys(batch: Batch) -> set[str]:
    """Every key on the server but the plane's bell: one entry, whatever was declared."""
    return {key.decode() for key in await batch.wire.call("KEYS", "*")} - {bell(Plane.LIVE)}


async def left(batch: Batch) -> Tombstone:
    """The batch's tombstone."""
    tombstone = await batch.bus.tombstone(batch.name)
    assert tombstone is not None
    return tombstone


def place(directory: Path, name: str = "b") -> Path:
    """Where a live batch's archive is."""
    return directory / "live" / f"{name}.jsonl.zst"


def content(file: Path) -> list[bytes]:
    """The lines of an archive."""
    with reading(file) as lines:
        return lines.readlines()


def late(batch: Batch) -> Awaitable[Decision]:
    """What a worker sends that slept through its run's end: refused, and recorded behind the close."""
    return batch.bus.append(Ref(batch.name, batch.runs[0], LeaseId("old"), Gen(1)), Digest("0" * 64), 1, ["{}"])


# --- what is done -----------------------------------------------------------------------------------------


async def test_a_pruned_batch_is_an_archive_that_replays_and_a_tombstone_that_names_it(
    server: Target, tmp_path: Path
) -> None:
    """Every kind of key that a batch has is gone, and the file has every line that an export had."""
    batch = await Batch.open(server.address(), limits=FIRST_BUDGET)
    lines = await whole_history(batch)
    await batch.bus.put_blob(B, b"a sealed workspace")
    registry = batch.keys.registry
    assert len(await keys(batch)) > 10
    said = await pruned(batch.bus, tmp_path, "b")
    assert await keys(batch) == {registry}
    assert content(place(tmp_path)) == lines
    found = replay_file(place(tmp_path), None)
    assert await left(batch) == Tombstone(
        str(place(tmp_path)), found.entries, Digest(found.head), found.snapshot_id or "", "closed", cleared=True
    )
    assert f"head {found.head}, snapshot {found.snapshot_id}" in said
    assert list(place(tmp_path).parent.iterdir()) == [place(tmp_path)]
    await batch.aclose()


async def test_other_batches_keep_their_keys_whatever_they_are_called(
    batch: Batch, address: Address, tmp_path: Path
) -> None:
    """`b*` and `[b]` are names for the bus, and patterns for a server; `b` is how `b.2` begins."""
    others = [await Batch.open(address, name=name) for name in ("b*", "b.2", "bb", "[b]")]
    for one in [batch, *others]:
        await ended(one)
    before = {key for key in await keys(batch) if not key.startswith(batch.keys.batch_row.removesuffix("batch"))}
    await pruned(batch.bus, tmp_path, "b")
    assert await keys(batch) == before
    await pruned(batch.bus, tmp_path, "b*")
    await pruned(batch.bus, tmp_path, "[b]")
    assert await keys(batch) == {key for key in before if ":b:b*:" not in key and ":b:[b]:" not in key}
    for one in others:
        await one.aclose()


async def test_without_names_all_that_have_ended_go_but_those_that_a_rule_keeps(
    batch: Batch, address: Address, tmp_path: Path
) -> None:
    """An open one is left out without a word; one scan removes the keys of all the others."""
    others = {name: await Batch.open(address, name=name) for name in ("open", "nightly", "release-1")}
    for name, one in others.items():
        if name != "open":
            await ended(one)
    await ended(batch)
    plan = await make_plan(batch.bus, [], [parse_rule("release-*")])
    assert [info.spec.batch for info in plan.batches] == ["nightly", "b"]
    assert plan.kept == ("release-1",)
    await prune(batch.bus, plan, tmp_path, Console(file=io.StringIO()))
    assert {name: at.value for name, at in (await batch.bus.all_batches()).items()} == {
        "open": "open", "nightly": "pruned", "release-1": "closed", "b": "pruned",
    }  # fmt: skip
    assert {key.split(":")[3] for key in await keys(batch) if ":b:" in key} == {"open", "release-1"}
    assert {one.name for one in (tmp_path / "live").iterdir()} == {"b.jsonl.zst", "nightly.jsonl.zst"}
    for one in others.values():
        await one.aclose()


async def test_a_batch_below_its_quorum_is_pruned_too(server: Target, tmp_path: Path) -> None:
    """It has no number, and its history is the proof of that."""
    batch = await Batch.open(server.address(), runs=1)
    await batch.bus.abandon(B, 0, batch.runs, "budget")
    assert (await batch.bus.close(B, "s", 0)).reason == "below_quorum"
    await pruned(batch.bus, tmp_path, "b")
    assert ((await left(batch)).status, await keys(batch)) == ("inconclusive", {batch.keys.registry})
    await batch.aclose()


# --- who is refused ---------------------------------------------------------------------------------------


async def test_an_open_batch_is_refused_by_name_and_nothing_is_pruned_beside_it(
    batch: Batch, address: Address, tmp_path: Path
) -> None:
    """All names are looked at before the first batch goes."""
    other = await Batch.open(address, name="ended")
    await ended(other)
    with pytest.raises(InputError, match="batch 'b' is open: only one that has ended can be archived whole"):
        await make_plan(batch.bus, [other.name, B], [])
    with pytest.raises(InputError, match="no batch 'c' on this server"):
        await make_plan(batch.bus, [other.name, BatchId("c")], [])
    await other.aclose()


async def test_what_an_open_batch_scores_anew_is_kept(batch: Batch, tmp_path: Path) -> None:
    """It still reads the rows of its source. By name that is an error; else the source is kept."""
    await ended(batch)
    await batch.bus.create(replace(batch.spec, batch=BatchId("again"), source=B))
    with pytest.raises(InputError, match="batch 'b' is in use: batch 'again' is open, and scores its runs anew"):
        await make_plan(batch.bus, [B], [])
    assert (await make_plan(batch.bus, [], ALL)).kept == (B,)


async def closed(batch: Batch) -> None:
    """The one run that it has adopted is scored, and it is closed over that."""
    scoring = await batch.scoring()
    assert (await batch.bus.score(scoring.ref, scoring.judgement)).applied
    await batch.closed()


async def test_what_a_closed_batch_scored_anew_goes_and_where_its_answers_are_is_said(
    server: Target, tmp_path: Path
) -> None:
    """The other one's verdicts stay; the answers that they are about were never its own. Not if both go."""
    async with one_over_another(server.address()) as (first, second):
        await closed(second)
        both, screen = await make_plan(first.bus, [], ALL), io.StringIO()
        assert (len(both.batches), both.outlived_by) == (2, {})
        pruning.show(first.bus, await make_plan(first.bus, [first.name], []), tmp_path, Console(file=screen))
        said = "second scored its runs anew, and cannot show their answers without it"
        assert f"  {said}: evalbus show {place(tmp_path, 'first')} RUN\n" in screen.getvalue()
        assert f"  {said}: evalbus show {place(tmp_path, 'first')} RUN\n" in await pruned(first.bus, tmp_path, "first")
        assert "scored its runs anew" not in await pruned(first.bus, tmp_path, "second")


async def test_what_an_open_batch_reads_by_way_of_another_is_kept_too(server: Target) -> None:
    """What is scored anew in turn was sealed in the first: the third would wait for its transcripts for ever."""
    async with one_over_another(server.address()) as (first, second):
        await closed(second)
        await first.bus.create(replace(second.spec, batch=BatchId("third"), source="second"))
        for name in (first.name, second.name):
            with pytest.raises(InputError, match=f"batch '{name}' is in use: batch 'third' is open"):
                await make_plan(first.bus, [name], [])


async def test_a_batch_that_begins_to_score_it_anew_meanwhile_is_seen_by_the_script(
    batch: Batch, tmp_path: Path
) -> None:
    """The plan was made, the archive is written: then comes the rescore, which would wait for ever for its source."""
    await ended(batch)
    plan = await make_plan(batch.bus, [B], [])
    place(tmp_path).parent.mkdir()
    archived = await archive(batch.bus, plan.batches[0], place(tmp_path))
    await batch.bus.create(replace(batch.spec, batch=BatchId("again"), source=B))
    assert (await retire(batch.bus, archived, [])).reason == "others_changed"
    said = await retire(batch.bus, archived, [BatchId("again")])
    assert (said.reason, said.answer) == ("source_in_use", {"by": "again"})
    screen = io.StringIO()
    await prune(batch.bus, plan, tmp_path, Console(file=screen))
    assert "b: kept, an open batch has begun to score its runs anew" in screen.getvalue()
    assert (await batch.bus.adopt(BatchId("again"), B, NextRuns(0, batch.runs, [], P1, "c", "j"))).verb is Verb.COMMIT


async def test_a_batch_whose_history_is_not_true_stays(batch: Batch, tmp_path: Path) -> None:
    """An entry that no script wrote; a number in the row that does not follow. The file is not given its name."""
    await ended(batch)
    await batch.wire.call("HSET", batch.keys.batch_row, "snapshot", "f" * 64)
    with pytest.raises(ViolationError, match=r"its snapshot is .*, on the server it is ffff"):
        await pruned(batch.bus, tmp_path, "b")
    [*_, (_, flat)] = await batch.wire.call("XRANGE", batch.keys.history, "-", "+")
    await batch.wire.call("XADD", batch.keys.history, "*", *flat)
    with pytest.raises(ViolationError, match=r"b~\.jsonl\.zst:\d+: entry .* histogram\.close: recorded commit"):
        await pruned(batch.bus, tmp_path, "b")
    assert (await batch.bus.all_batches())[B] == "closed"
    assert not place(tmp_path).exists()


async def test_a_damaged_disk_keeps_the_batch(batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is checked is what can be read back: one byte of the file is another than was written."""
    await ended(batch)

    async def damaged(file: Path) -> Any:  # noqa: ANN401 - whatever the real one gives
        packed = bytearray(file.read_bytes())
        packed[len(packed) // 2] ^= 1
        file.write_bytes(packed)
        return await replayed(file)

    replayed = archiving._replayed
    monkeypatch.setattr(archiving, "_replayed", damaged)
    with pytest.raises((InputError, ViolationError), match=r"b~\.jsonl\.zst"):
        await pruned(batch.bus, tmp_path, "b")
    assert (await batch.bus.all_batches())[B] == "closed"


async def test_what_is_in_an_artifact_store_is_left_there_and_that_is_said(batch: Batch, tmp_path: Path) -> None:
    """The store may be another batch's too, and is no part of the server."""
    await batch.admit()
    for number, _ in enumerate(batch.runs):
        held = await batch.claimed()
        here = await batch.bus.put_blob(B, b"small")
        artifact = here if number else "e" * 64
        assert (await batch.bus.seal(held.ref, Digest(EMPTY_HEAD), 1, "answer", "t" * 64, artifact)).applied
    await rest_of(batch)
    said = await pruned(batch.bus, tmp_path, "b")
    assert "sealed workspaces in the artifact store, which stay there: 1\n" in said


# --- what comes in between --------------------------------------------------------------------------------


async def test_what_is_recorded_behind_the_archive_is_archived_too(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late worker is refused after the export and before the batch goes: that refusal is history, and in the file."""
    await ended(batch)
    tried: list[Decision] = []

    async def late_first(bus: RedisBus, archived: Archived, others: Sequence[BatchId]) -> Decision:
        if not tried:
            assert (await late(batch)).reason == "lease_mismatch"
        tried.append(await retire(bus, archived, others))
        return tried[-1]

    monkeypatch.setattr(pruning, "retire", late_first)
    await pruned(batch.bus, tmp_path, "b")
    assert [decision.reason for decision in tried] == ["not_archived", None]
    *_, refusal, closing = map(json.loads, content(place(tmp_path)))
    assert (refusal["verb"], refusal["reason"]) == ("reject", "lease_mismatch")
    assert closing["entries"] == (await left(batch)).entries


async def test_a_batch_that_is_written_to_all_the_time_stays(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody hammers at it: that is said, and nothing is lost."""
    await ended(batch)

    async def always_late(bus: RedisBus, archived: Archived, others: Sequence[BatchId]) -> Decision:
        await late(batch)
        return await retire(bus, archived, others)

    monkeypatch.setattr(pruning, "retire", always_late)
    monkeypatch.setattr(pruning, "_TRIES", 2)
    with pytest.raises(InputError, match="batch 'b' is written to all the time"):
        await pruned(batch.bus, tmp_path, "b")
    assert (await batch.bus.all_batches())[B] == "closed"


async def test_two_that_prune_one_batch_leave_two_archives_of_the_same_history(
    batch: Batch, address: Address, tmp_path: Path
) -> None:
    """One retires it first; for the other, wherever it stands, it was done already."""
    await ended(batch)
    lines = await exported(batch)
    plan = await make_plan(batch.bus, [B], [])
    second = RedisBus(FixedDoor(address), SystemRuntime())
    await asyncio.gather(
        prune(batch.bus, plan, tmp_path / "1", Console(file=io.StringIO())),
        prune(second, plan, tmp_path / "2", Console(file=io.StringIO())),
    )
    await second.aclose()
    assert await keys(batch) == {batch.keys.registry}
    assert content(Path((await left(batch)).file)) == lines
    assert all(content(one) == lines for one in tmp_path.rglob("b.jsonl.zst"))


async def test_two_do_not_work_in_one_directory(batch: Batch, tmp_path: Path) -> None:
    """They would move each other's files. What one that was killed has left is removed; another's archives stay."""
    await ended(batch)
    directory = tmp_path / "live"
    with directory_of_its_own(directory):
        with pytest.raises(InputError, match="live: another prune is at work here"):
            await pruned(batch.bus, tmp_path, "b")
        assert (await batch.bus.all_batches())[B] == "closed"
        for name in ("b~.jsonl.zst", ".evalbus-0123456789abcdef.tmp", "c.jsonl.zst"):
            (directory / name).write_text("half")
    await pruned(batch.bus, tmp_path, "b")
    assert {one.name for one in directory.iterdir()} == {"b.jsonl.zst", "c.jsonl.zst"}


async def test_a_retire_whose_answer_was_lost_is_a_duplicate(batch: Batch, tmp_path: Path) -> None:
    """The batch is gone by its own first sending: that is no refusal."""
    await ended(batch)
    [info] = (await make_plan(batch.bus, [B], [])).batches
    place(tmp_path).parent.mkdir()
    archived = await archive(batch.bus, info, place(tmp_path))
    assert (await retire(batch.bus, archived, [])).verb is Verb.COMMIT
    assert (await retire(batch.bus, archived, [])).verb is Verb.DUPLICATE
    other = replace(archived, tombstone=replace(archived.tombstone, file="elsewhere"))
    assert (await retire(batch.bus, other, [])).reason == "no_batch"


# --- an interrupted one goes on ---------------------------------------------------------------------------


class Life:
    """A process that is killed at its n-th step: a command to the server, or the move of a file.

    From then on nothing that it still does, in a `finally` or anywhere, has an effect. `answered`: the step itself has
    had its effect before.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, steps: int, *, answered: bool) -> None:
        self.left, self._answered = steps, answered
        for name in ("command", "commands", "run_many", "run_together"):
            monkeypatch.setattr(Link, name, self._mortal(getattr(Link, name)))
        move = Path.replace

        def mortal(path: Path, target: Path) -> Path:
            self._before()
            moved = move(path, target)
            self._after()
            return moved

        monkeypatch.setattr(Path, "replace", mortal)

    def _mortal(self, step: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
        async def mortal(*args: Any, **named: Any) -> T:  # noqa: ANN401 - as the step's
            self._before()
            answer = await step(*args, **named)
            self._after()
            return answer

        return mortal

    def _before(self) -> None:
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self._answered):
            raise Cut

    def _after(self) -> None:
        if self.left == 0:
            raise Cut


@pytest.mark.parametrize("answered", [False, True], ids=["before", "behind"])
async def test_a_prune_that_is_killed_at_any_step_loses_nothing_and_the_next_one_ends_it(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    """Before each of its steps, and behind it: the batch is there in full, or its archive is, under a tombstone."""
    cuts, states = 0, set()
    while True:
        await batch.wire.call("FLUSHALL")
        directory = tmp_path / f"{cuts}"
        await batch.bus.create(batch.spec)
        await ended(batch)
        lines = await exported(batch)
        with monkeypatch.context() as patch:
            Life(patch, cuts + 1, answered=answered)
            try:
                await pruned(batch.bus, directory)
                killed = False
            except Cut:
                killed = True
        tombstone = await batch.bus.tombstone(B)
        if tombstone is None:
            assert await exported(batch) == lines
        else:
            assert content(Path(tombstone.file)) == lines
            assert tombstone.cleared <= (await keys(batch) == {batch.keys.registry})
        states.add(None if tombstone is None else tombstone.cleared)
        await pruned(batch.bus, directory)
        assert await keys(batch) == {batch.keys.registry}
        assert (await left(batch)).cleared
        assert replay_file(place(directory), (await left(batch)).head).entries == len(lines) - 2
        assert [one.name for one in (directory / "live").iterdir()] == ["b.jsonl.zst"]
        if not killed:
            break
        cuts += 1
    assert cuts > 10
    assert states == {None, False, True}


async def test_what_was_left_is_removed_by_a_prune_of_anything(batch: Batch, tmp_path: Path) -> None:
    """Killed behind `retire`. The next prune has another batch to do, or none, and finishes this one."""
    await ended(batch)
    [info] = (await make_plan(batch.bus, [B], [])).batches
    place(tmp_path).parent.mkdir()
    await retire(batch.bus, await archive(batch.bus, info, place(tmp_path)), [])
    assert len(await keys(batch)) > 1
    plan = await make_plan(batch.bus, [], [parse_rule("*")])
    assert (plan.batches, [*plan.left]) == ((), [B])
    await prune(batch.bus, plan, tmp_path, Console(file=io.StringIO()))
    assert await keys(batch) == {batch.keys.registry}


# --- the file ---------------------------------------------------------------------------------------------


async def test_another_batch_s_archive_of_that_name_is_not_overwritten(batch: Batch, tmp_path: Path) -> None:
    """It is the only proof of another number. The batch stays until somebody has decided."""
    await ended(batch)
    await pruned(batch.bus, tmp_path, "b")
    before = place(tmp_path).read_bytes()
    await batch.wire.call("FLUSHALL")
    await batch.bus.create(batch.spec)
    await ended(batch)
    with pytest.raises(InputError, match=r"b\.jsonl\.zst: another history is there, .*name another --archive"):
        await pruned(batch.bus, tmp_path, "b")
    assert place(tmp_path).read_bytes() == before
    assert (await batch.bus.all_batches())[B] == "closed"


FOREIGN = {
    "empty": b"",
    "text": b"my notes\n",
    "another end": b'{"entries":1,"head":"x","snapshot":null}\n',
    "half an archive": b"\x28\xb5\x2f\xfd",
}


@pytest.mark.parametrize("there", list(FOREIGN.values()), ids=list(FOREIGN))
async def test_a_file_that_is_no_earlier_state_is_not_overwritten(batch: Batch, tmp_path: Path, there: bytes) -> None:
    """Whatever it is."""
    await ended(batch)
    place(tmp_path).parent.mkdir()
    place(tmp_path).write_bytes(there)
    with pytest.raises(InputError, match="another history is there"):
        await pruned(batch.bus, tmp_path, "b")
    assert place(tmp_path).read_bytes() == there


async def test_an_archive_of_an_earlier_state_is_replaced(batch: Batch, tmp_path: Path) -> None:
    """Exported by hand when the batch had closed; a worker came late since."""
    await ended(batch)
    place(tmp_path).parent.mkdir()
    with writing(place(tmp_path)) as out:
        out.write(b"".join(await exported(batch)))
    await late(batch)
    lines = await exported(batch)
    await pruned(batch.bus, tmp_path, "b")
    assert content(place(tmp_path)) == lines


async def test_a_directory_that_cannot_be_made_is_told_before_anything_is_removed(batch: Batch, tmp_path: Path) -> None:
    """One line; the batch stays."""
    await ended(batch)
    (tmp_path / "live").write_text("in the way")
    with pytest.raises(InputError, match="live: cannot be made"):
        await pruned(batch.bus, tmp_path, "b")
    assert (await batch.bus.all_batches())[B] == "closed"


# --- what comes late --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """A script that was called, and how to call it once more."""

    script: Script
    again: Callable[[], Awaitable[Sequence[Decision | ReplyError]]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Sent]:
    """Every script call from here on."""
    found: list[Sent] = []

    run_many, run_together = Link.run_many, Link.run_together

    async def alone(link: Link, script: Script, keys: Mapping[str, object], argv: Arguments) -> list[Decision]:
        found.append(Sent(script, partial(run_many, link, script, keys, argv)))
        return await run_many(link, script, keys, argv)

    async def together(
        link: Link, script: Script, shared: Sequence[str], commands: Callable[[str], Sequence[Command]]
    ) -> list[Decision | ReplyError]:
        made: list[Command] = []

        def noted(server: str) -> Sequence[Command]:
            made[:] = commands(server)
            return made

        found.append(Sent(script, partial(run_together, link, script, shared, lambda _: made)))
        return await run_together(link, script, shared, noted)

    monkeypatch.setattr(Link, "run_many", alone)
    monkeypatch.setattr(Link, "run_together", together)
    return found


async def test_no_script_that_comes_late_creates_a_key(any_server: Target, sent: list[Sent]) -> None:
    """Everything that was ever sent to a batch is sent again when it is pruned: refused, and nothing is there again."""
    batch = await Batch.open(any_server.address(), **SPEC)  # type: ignore[arg-type]
    async for step in steps(batch):
        await step.send()
    assert {one.script.name for one in sent if one.script.name.startswith("run.")} == {
        script.name for script in all_scripts("run")
    }
    before, names = list(sent), sorted(await batch.bus.all_batches())
    tombstones = {}
    for name in names:  # however they stand: what is asked here is what comes later
        at = batch.bus.keys(name)
        tombstones[name] = Tombstone("/archive", 1, Digest("a" * 64), "b" * 64, "closed")
        await batch.wire.call("HSET", at.registry, name, tombstones[name].text())
        await batch.wire.call("DEL", at.batch_row)
    await clear(batch.bus, tombstones)
    registry = await batch.wire.call("HGETALL", batch.keys.registry)
    assert await keys(batch) == {batch.keys.registry}
    answers: dict[str, set[str]] = {}
    for one in before:
        if one.script.name.startswith("run."):
            said = await one.again()
            assert not any(isinstance(answer, ReplyError) for answer in said)
            reasons = {str(answer.reason) for answer in said if isinstance(answer, Decision)}
            answers.setdefault(one.script.name, set()).update(reasons)
            assert await keys(batch) == {batch.keys.registry}, one.script.name
    other = {"run.create": {"pruned"}, "run.remove": {"not_pruned"}}
    assert answers == {name: other.get(name, {"no_batch"}) for name in answers}
    assert await batch.wire.call("HGETALL", batch.keys.registry) == registry
    await batch.aclose()


async def test_bytes_that_a_late_worker_stores_do_not_stay(batch: Batch, tmp_path: Path) -> None:
    """It stores its workspace before it seals. Nobody would ever remove those bytes."""
    await ended(batch)
    await pruned(batch.bus, tmp_path, "b")
    digest = await batch.bus.put_blob(B, b"a sealed workspace")
    assert await batch.wire.call("GET", batch.keys.blob(digest)) in (b"", None)
    assert await batch.wire.call("PTTL", batch.keys.blob(digest)) != -1


async def test_every_lease_of_a_late_heartbeat_is_answered(batch: Batch, tmp_path: Path) -> None:
    """The consumer asks for several; the batch of some of them is gone."""
    await ended(batch)
    await pruned(batch.bus, tmp_path, "b")
    refs = [Ref(B, run, LeaseId(f"L{n}"), Gen(1)) for n, run in enumerate(batch.runs)]
    answers = await batch.bus.heartbeat(Group.WORKER, W1, Held(refs))
    assert [answer.reason for answer in answers] == ["no_batch", "no_batch"]


async def test_who_waits_for_messages_of_a_batch_that_is_pruned_goes_on(batch: Batch, tmp_path: Path) -> None:
    """A worker that was about to hear that the batch has closed has others to serve: it reads nothing, and no error."""
    await ended(batch)
    reading = asyncio.create_task(batch.bus.read(Group.WORKER, W1, [B], 1, 60_000))
    while "flags=b" not in (await batch.wire.call("CLIENT", "LIST")).decode():
        await asyncio.sleep(0)
    await pruned(batch.bus, tmp_path, "b")
    assert await soon(reading) == []
    assert await batch.bus.take_idle(Group.WORKER, W1, [B], 1, 0) == []
    assert await batch.bus.own_pending(Group.WORKER, W1, [B], 1) == []
    assert await batch.bus.undelivered(B, Group.WORKER) == 0
    assert await keys(batch) == {batch.keys.registry}


async def test_a_name_that_was_pruned_stays_taken(batch: Batch, tmp_path: Path) -> None:
    """Another batch under it would pass for the one whose number was quoted; the answer says where that is."""
    await ended(batch)
    await pruned(batch.bus, tmp_path, "b")
    said = await batch.bus.create(batch.spec)
    tombstone = await left(batch)
    assert (said.reason, said.answer) == ("pruned", {"tombstone": tombstone.text()})
    with pytest.raises(InputError) as error:
        await batch.bus.info(B)
    assert str(error.value) == (
        f"batch 'b' was pruned: its history is in {place(tmp_path)} (head {tombstone.head}, snapshot "
        f"{tombstone.snapshot_id}) (to look at it: evalbus import {place(tmp_path)})"
    )


async def test_keys_of_a_name_that_is_a_batch_s_again_are_left_alone(batch: Batch, tmp_path: Path) -> None:
    """The scan was slow, and the archive has been imported since: another row, or another word in the registry."""
    await ended(batch)
    await pruned(batch.bus, tmp_path, "b")
    tombstone = await left(batch)
    await batch.wire.call("HSET", batch.keys.batch_row, "imported", "token")
    await batch.wire.call("SET", batch.keys.index, "a key of the import")
    there = await keys(batch)
    assert await clear(batch.bus, {B: tombstone}) == 0
    await batch.wire.call("DEL", batch.keys.batch_row)
    await batch.wire.call("HSET", batch.keys.registry, "b", "closed")
    assert await clear(batch.bus, {B: tombstone}) == 0
    assert await keys(batch) == there - {batch.keys.batch_row}
    assert await batch.wire.call("HGET", batch.keys.registry, "b") == b"closed"


# --- rules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "stay"),
    [
        ([], ""),
        (["30d"], "c d"),
        (["1.5h"], "d"),
        (["last=0"], ""),
        (["last=1"], "d"),
        (["last=3"], "b c d"),
        (["last=9"], "a b c d"),
        (["a"], "a"),
        (["[bd]"], "b d"),
        (["*"], "a b c d"),
        (["a", "last=1"], "a d"),
        (["2h", "30d", "b*"], "b c d"),
    ],
)
def test_a_batch_is_kept_if_any_rule_keeps_it(rules: list[str], stay: str) -> None:
    """Ended 60, 30, 10 days ago, and now: 30 days ago is not less than 30 days ago."""
    now = 100 * DAY
    ages = {"a": 60, "b": 30, "c": 10, "d": 0}
    batches = [Ended(BatchId(name), now - days * DAY) for name, days in ages.items()]
    assert sorted(kept([parse_rule(rule) for rule in rules], batches, now)) == stay.split()


@pytest.mark.parametrize(
    "written", ["", "30", "30x", "last=", "last=-1", "last=x", "a b", "0d", "../x", "99999999999d"]
)
def test_a_rule_that_cannot_be_read_is_an_error(written: str) -> None:
    """Taken for a pattern it would keep nothing, and what it was for would be gone."""
    with pytest.raises(InputError, match="--keep: "):
        parse_rule(written)


def test_a_plain_name_that_no_batch_has_is_an_error() -> None:
    """`--keep relaese-1` would keep nothing; a pattern may well find nothing yet."""
    batches = [Ended(BatchId("release-1"), DAY)]
    with pytest.raises(InputError, match="no batch that has ended is called 'relaese-1'"):
        kept([parse_rule("relaese-1"), parse_rule("last=9")], batches, 2 * DAY)
    assert kept([parse_rule("nightly-*")], batches, 2 * DAY) == set()


def test_what_is_meant_must_be_said() -> None:
    """Neither names nor rules, or both."""
    with pytest.raises(InputError, match="which batches"):
        PruneOptions.of([], [], dry_run=False)
    with pytest.raises(InputError, match="one or the other"):
        PruneOptions.of(["b"], ["30d"], dry_run=False)
    with pytest.raises(InputError, match="cannot name a batch"):
        PruneOptions.of(["b:c"], [], dry_run=False)


# --- the command ------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_from_a_run_to_its_archive_with_the_commands_that_ask_for_it_afterwards(tmp_path: Path) -> None:
    """Every command that is given a pruned batch answers the same one line, and exit code 2."""
    with Stage.opened(tmp_path) as stage:
        suite = stage.suite([case("a"), case("b", target="2")])
        assert (await stage.call("run", suite, "--workers", 1, "--scorers", 1, "--batch", "b")).code == 0
        told = await stage.call("prune", "--keep", "last=0", "--dry-run")
        assert (told.code, "would be archived in" in told.out) == (0, True)
        assert "b" in (await stage.call("status")).out
        done = await stage.call("prune", "b")
        assert (done.code, done.err) == (0, "")
        [archive] = stage.root.rglob("b.jsonl.zst")
        assert f"entries in {archive}" in done.out
        assert (await stage.call("replay", archive)).code == 0
        assert "no batches" in (await stage.call("status")).out
        for command in (
            ("status", "b"), ("gate", "b"), ("export", "b", "-"), ("replay", "b"), ("why", "b", "a#1"),
            ("run", suite, "--batch", "b"), ("rescore", "b", "--judge", suite), ("planner", "--batch", "b"),
        ):  # fmt: skip
            said = await stage.call(*command)
            assert said.code == 2, (command, said)
            *before, line = said.err.splitlines()
            assert line.startswith(f"evalbus: batch 'b' was pruned: its history is in {archive} (head "), command
            assert all(one.startswith("{") for one in before), command  # a role's log
        again = await stage.call("prune", "b")
        assert (again.code, "0 pruned" in again.out) == (0, True)
        for wrong in (("prune",), ("prune", "c"), ("prune", "--keep", "30"), ("prune", "b", "--keep", "30d")):
            assert (await stage.call(*wrong)).code == 2


async def test_an_operator_may_prune_and_no_other_role(any_real_server: RealServer) -> None:
    """SCAN shows the names of all keys, and UNLINK takes them away: a worker has neither."""
    with any_real_server.client() as client:
        try:
            for role in AclRole:
                client.execute_command("ACL", "SETUSER", *rule(role, Plane.LIVE, WORD).split())
            for role in (AclRole.OPERATOR, AclRole.WORKER, AclRole.PLANNER, AclRole.READER):
                user = replace(any_real_server.target, username=user_name(role, Plane.LIVE), password=WORD)
                if role is AclRole.OPERATOR:
                    assert (await check_fit(user, commands=(*COMMANDS, *PRUNING))).role == "master"
                    continue
                with pytest.raises(ServerUnfit, match="rights"):
                    await check_fit(user, commands=PRUNING)
        finally:
            client.execute_command("ACL", "DELUSER", *(user_name(role, Plane.LIVE) for role in AclRole))
