"""An exported history in a server again: everything that looks at a batch looks at it, and nothing can be done to it.

The proof of an import is that its export is the file, byte for byte. What rows and counters say is compared with what
they said on the server that the history comes from.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import itertools
import os
import threading
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from bus.calling import call
from bus.chain import EMPTY_HEAD
from bus.envelopes import encode
from bus.errors import InputError, ReplyError, ServerUnreachable
from bus.fences.admission import Admission
from bus.fences.fence import Channel
from bus.imported.writing import Import
from bus.link import Link
from bus.port import BatchStatus, NextRuns, RunRow
from bus.redis_bus import RedisBus
from bus.replay.lines import Lines
from bus.replay.telling import DiffersError, Told
from bus.scripts import Script, all_scripts
from bus.target import Target
from bus.types import BatchId, Gen, Plane
from bus.wire import Reply, Wire
from tests import walks
from tests.batches import P1, Batch, FixedDoor
from tests.explained import eventful
from tests.fleet import Stage, case
from tests.histories import edited, exported, parsed, rechained, whole_history
from tests.limits import FIRST_BUDGET
from workers.catalogue import Catalogue
from workers.cli import app
from workers.explaining.reading import read_server
from workers.histories.importing import checked, put_back
from workers.histories.keeping import parse_rule
from workers.histories.pruning import make_plan, prune
from workers.histories.replaying import replay_batch
from workers.results.fetching import fetch_outcome
from workers.runtime import SystemRuntime
from workers.watching.looking import Watcher


@pytest.fixture
async def batch(server: Target) -> AsyncIterator[Batch]:
    """Three runs, all fences declared, nothing admitted."""
    one = await Batch.open(server.address(), limits=FIRST_BUDGET)
    yield one
    await one.aclose()


@pytest.fixture
async def elsewhere(server: Target, batch: Batch) -> AsyncIterator[RedisBus]:
    """Where nothing is: the same server, once it is emptied; to be used after the export."""
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    yield bus
    await bus.aclose()


async def imported(bus: RedisBus, lines: Sequence[bytes], file: Path, plane: Plane | None = None) -> None:
    """As the command does it."""
    file.write_bytes(b"".join(lines))
    with checked(str(file), plane) as source:
        await put_back(bus, source)


async def emptied(batch: Batch) -> None:
    """Another server."""
    await batch.wire.call("FLUSHALL")


async def keys_of(wire: Wire) -> dict[str, Reply]:
    """Everything on the server."""
    read = {
        "hash": ("HGETALL",),
        "list": ("LRANGE", "0", "-1"),
        "set": ("SMEMBERS",),
        "stream": ("XRANGE", "-", "+"),
        "string": ("GET",),
    }
    found: dict[str, Reply] = {}
    for key in sorted(await wire.call("KEYS", "*")):
        command, *rest = read[(await wire.call("TYPE", key)).decode()]
        found[key.decode()] = await wire.call(command, key, *rest)
    return found


def without_detail(rows: Sequence[RunRow]) -> list[RunRow]:
    """The rows as a history can tell them: no line has a run's last words, nor the message that it waited for."""
    return [replace(row, detail="", entry="") for row in rows]


# --- what is there afterwards -----------------------------------------------------------------------------


async def test_an_imported_batch_is_exported_as_the_very_same_bytes(
    batch: Batch, elsewhere: RedisBus, tmp_path: Path
) -> None:
    """Every fence, refusals with what was presented, a turn, an undo; and the snapshot, out of the rows."""
    lines = await whole_history(batch)
    before = without_detail(await batch.bus.rows(batch.name, batch.runs))
    counters, outcome = await batch.bus.counters(batch.name), await fetch_outcome(batch.bus, batch.name)
    await emptied(batch)
    await imported(elsewhere, lines, tmp_path / "h.jsonl")
    assert await exported(batch) == lines
    assert without_detail(await elsewhere.rows(batch.name, batch.runs)) == before
    assert await elsewhere.counters(batch.name) == counters
    assert (await fetch_outcome(elsewhere, batch.name)).as_json() == outcome.as_json()
    found = await replay_batch(elsewhere, batch.name, parsed(lines[-1])["head"])
    assert found.snapshot_id == counters.snapshot_id


async def test_what_was_presented_in_no_form_that_a_script_takes_is_exported_as_it_was(
    batch: Batch, elsewhere: RedisBus, tmp_path: Path
) -> None:
    """A list, half of a surrogate pair, fields that no operation has: their refusals stand in the file as presented.

    What an export once made of an envelope, it must not make once more of what it reads back.
    """
    await batch.admit()
    fence = Admission(Channel(batch.bus.link, batch.keys, SystemRuntime()))
    for lease in (["1"], [["1"]], {"a": 1}, 1.5, "\ud800", 2**60):
        place = {"run": "c0#1", "step": "s", "lease": lease, "beside": "it"}
        assert (await fence.send("release", place)).reason in ("schema", "unknown_lease")
    lines = await exported(batch)
    await emptied(batch)
    await imported(elsewhere, lines, tmp_path / "h.jsonl")
    assert await exported(batch) == lines


async def test_an_open_batch_with_parked_poisoned_and_turned_runs_stands_as_it_stood(
    batch: Batch, elsewhere: RedisBus, tmp_path: Path
) -> None:
    """Nothing of it has ended but two runs; who holds what, under which token, is followed from the lines."""
    await batch.admit()
    await eventful(batch)
    lines = await exported(batch)
    before = without_detail(await batch.bus.rows(batch.name, batch.runs))
    counters = await batch.bus.counters(batch.name)
    words = [await read_server(batch.bus, batch.name, run) for run in batch.runs]
    said = [await batch.bus.transcript(batch.name, run) for run in batch.runs]
    await emptied(batch)
    await imported(elsewhere, lines, tmp_path / "h.jsonl")
    assert await exported(batch) == lines
    assert without_detail(await elsewhere.rows(batch.name, batch.runs)) == before
    assert replace(await elsewhere.counters(batch.name), estimated=0) == replace(counters, estimated=0)
    assert [await elsewhere.transcript(batch.name, run) for run in batch.runs] == said
    told = [await read_server(elsewhere, batch.name, run) for run in batch.runs]
    assert [one.story for one in told] == [one.story for one in words]


async def test_hand_backs_count_as_they_did(server: Target, elsewhere: RedisBus, tmp_path: Path) -> None:
    """Those of machines that could not do it never, those of who had to stop from the 21st on."""
    batch = await Batch.open(server.address(), runs=3, name="handed-back")
    try:
        await batch.admit()
        await batch.sealed()
        await batch.sealed()
        await batch.scoring()
        for machine in [*["m"] * 9, *[""] * 21]:
            await batch.bus.give_back((await batch.claimed()).ref, machine)
            await batch.bus.score_give_back((await batch.scoring()).ref, machine)
        before = {row.run: row for row in without_detail(await batch.bus.rows(batch.name, batch.runs))}
        assert sorted((row.attempts, row.score_attempts) for row in before.values()) == [(1, 0), (1, 1), (1, 1)]
        lines = await exported(batch)
        await emptied(batch)
        await imported(elsewhere, lines, tmp_path / "h.jsonl")
        assert {row.run: row for row in without_detail(await elsewhere.rows(batch.name, batch.runs))} == before
    finally:
        await batch.aclose()


async def walked_until_its_close(server: Target) -> tuple[Batch, Batch]:
    """A batch that met every script of a run, and one that has taken over what it sealed."""
    first = await Batch.open(server.address(), name="walk", **walks.SPEC)  # type: ignore[arg-type]
    async for step in walks.steps(first):
        if step.script == "run.close":  # with the name of a snapshot that the rows do not give
            break
        await step.send()
    await first.closed()
    spec = replace(first.spec, batch=BatchId("walk-rescored"), source=first.name)
    second = replace(first, spec=spec, keys=first.bus.keys(spec.batch))
    await first.bus.create(spec)
    taken = await first.bus.adopt(spec.batch, first.name, NextRuns(0, first.runs, [], P1, "candidate", "another"))
    assert taken.answer["why_stopped"] == "drained"
    scoring = await second.scoring()
    await first.bus.score_give_back(scoring.ref)
    await second.scoring()
    return first, second


async def test_every_script_s_work_is_followed_to_the_same_rows(server: Target, tmp_path: Path) -> None:
    """Calls, tools, undos, reviews, hand-backs, lost messages: rows and intents stand as the scripts left them."""
    first, second = await walked_until_its_close(server)
    bus = first.bus
    for one in (first, second):
        rows = without_detail(await bus.rows(one.name, one.runs))
        effects = [await bus.effects(one.name, run) for run in one.runs]
        counters, parked = await bus.counters(one.name), await bus.parked(one.name)
        lines = await exported(one)
        await removed(one)
        await imported(bus, lines, tmp_path / "h.jsonl")
        assert without_length(one, await bus.rows(one.name, one.runs)) == without_length(one, rows)
        assert [await bus.effects(one.name, run) for run in one.runs] == effects
        assert await bus.counters(one.name) == counters
        assert await bus.parked(one.name) == parked
        assert await exported(one) == lines
    await first.aclose()


async def removed(batch: Batch) -> None:
    """Take one batch off its server, tracelessly."""
    for key in await batch.wire.call("KEYS", batch.keys.every):
        await batch.wire.call("DEL", key)
    await batch.wire.call("HDEL", batch.keys.registry, batch.name)


def without_length(batch: Batch, rows: Sequence[RunRow]) -> list[RunRow]:
    """Of runs that were sealed in another batch: their transcripts, and so what counts in them, stayed there."""
    rows = without_detail(rows)
    if not batch.spec.source:
        return rows
    return [replace(row, length=0, gen=0, artifact="", conversation=0) for row in rows]


# --- what is refused ----------------------------------------------------------------------------------------


async def test_a_batch_of_that_name_is_left_as_it_is(batch: Batch, tmp_path: Path) -> None:
    """One that lives, and one that was imported before."""
    lines = await whole_history(batch)
    async with batch.unchanged():
        with pytest.raises(InputError, match=r"batch 'b' is on this server already \(import it into another one"):
            await imported(batch.bus, lines, tmp_path / "h.jsonl")
    await emptied(batch)
    await imported(batch.bus, lines, tmp_path / "h.jsonl")
    before = await keys_of(batch.wire)
    with pytest.raises(InputError, match="batch 'b' is on this server already"):
        await imported(batch.bus, lines, tmp_path / "h.jsonl")
    assert await keys_of(batch.wire) == before


async def test_what_is_not_true_is_refused_before_anything_is_written(batch: Batch, tmp_path: Path) -> None:
    """Edited, edited and chained anew, cut off; and a history under another plane, or of a name that is none."""
    lines = await whole_history(batch)
    await emptied(batch)

    def forge(said: dict[str, object]) -> None:
        said["verb"], said["reason"] = "reject", "stale_gen"

    file = tmp_path / "h.jsonl"
    with pytest.raises(DiffersError, match=r"h\.jsonl:9: the chain breaks here"):
        await imported(batch.bus, edited(lines, 8, forge), file)
    with pytest.raises(DiffersError, match=r"h\.jsonl:9: entry \S+ \S+: recorded reject stale_gen .*, derived commit"):
        await imported(batch.bus, rechained(edited(lines, 8, forge)), file)
    with pytest.raises(InputError, match="is truncated"):
        await imported(batch.bus, lines[:-1], file)
    with pytest.raises(InputError, match=r"batch 'b' is of the live plane, not of shadow \(leave --plane out"):
        await imported(batch.bus, lines, file, Plane.SHADOW)
    with pytest.raises(InputError, match="cannot name a batch"):
        await imported(batch.bus, [lines[0].replace(b'"batch":"b"', b'"batch":"b:run"'), *lines[1:]], file)
    assert await keys_of(batch.wire) == {}


async def test_what_is_true_and_spelt_otherwise_is_refused_and_leaves_nothing(batch: Batch, tmp_path: Path) -> None:
    """Its chain is made anew over the other spelling. An export would not give the same bytes."""
    lines = await whole_history(batch)
    await emptied(batch)
    other = [lines[0], lines[1], respelt(lines[2]), *lines[3:]]
    with pytest.raises(DiffersError, match=r"h\.jsonl:3: is spelt in another way than an export spells it"):
        await imported(batch.bus, chained_anew(other), tmp_path / "h.jsonl")
    assert await keys_of(batch.wire) == {}
    assert await batch.bus.info(batch.name) is None


def respelt(line: bytes) -> bytes:
    """The same values, with a blank."""
    return line.replace(b'"verb":', b'"verb": ', 1)


def chained_anew(lines: Sequence[bytes]) -> list[bytes]:
    """The chain over the lines as they are spelt."""
    head, made = "0" * 64, []
    for line in lines[1:-1]:
        text = line[: line.rindex(b',"chain":"')] + b"}"
        head = hashlib.sha256(head.encode() + text).hexdigest()
        made.append(text[:-1] + f',"chain":"{head}"}}\n'.encode())
    old = parsed(lines[-1])["head"].encode()
    return [lines[0], *made, lines[-1].replace(old, head.encode())]


# --- for looking only -----------------------------------------------------------------------------------------


@pytest.fixture
async def looked_at(batch: Batch, tmp_path: Path) -> Batch:
    """An open batch, imported: runs in somebody's hands, one parked."""
    await batch.admit()
    await eventful(batch)
    lines = await exported(batch)
    await emptied(batch)
    await imported(batch.bus, lines, tmp_path / "h.jsonl")
    return batch


async def test_its_refusals_are_shown_to_who_watches_it(looked_at: Batch) -> None:
    """Its entries are stored in another form; the tail of them reads as that of any batch."""
    view = await Watcher(looked_at.bus).view(looked_at.name)
    assert {refusal.reason for refusal in view.refusals} >= {"stale_gen", "stale_lease", "ended"}
    assert all(refusal.run for refusal in view.refusals)


async def test_no_script_writes_anything_to_an_imported_batch(looked_at: Batch) -> None:
    """Every script, whatever it is sent: an error, and not one key of the server is another."""
    before = await keys_of(looked_at.wire)
    sent = [one for one in all_scripts() if one.recorded and one.name not in REMOVING]
    assert len(sent) > 80
    for one in sent:
        assert "batch" in one.keys, one.name
        with pytest.raises(ReplyError, match=r"^IMPORTED "):
            await call(looked_at.wire, one, *words_for(looked_at, one))
    assert await keys_of(looked_at.wire) == before


async def test_a_batch_that_was_declared_here_is_never_taken_for_an_imported_one(looked_at: Batch) -> None:
    """An import that lost the name to a declaration leaves its mark there for a moment: every script goes on."""
    await looked_at.wire.call("HSET", looked_at.keys.batch_row, "declared", "somebody's")
    before = await keys_of(looked_at.wire)
    for one in all_scripts():
        if one.recorded and one.name not in REMOVING:
            await call(looked_at.wire, one, *words_for(looked_at, one))
    assert await keys_of(looked_at.wire) != before


REMOVING = ("run.retire", "run.remove")
"""What a prune sends: see `tests/test_pruning.py`."""


def words_for(batch: Batch, one: Script) -> tuple[dict[str, object], dict[str, object]]:
    """KEYS and ARGV: the batch's own row, and beside it what is not there; an envelope that says whose it is."""
    keys: dict[str, object] = {}
    for name in one.keys:
        key = batch.keys.batch_row if name == "batch" else batch.keys.stream(f"nothing-{name.removesuffix('…')}")
        keys[name.removesuffix("…")] = [key] if name.endswith("…") else key
    argv: dict[str, object] = {name.removesuffix("…"): ["1"] if name.endswith("…") else "1" for name in one.argv}
    return keys, argv | {"envelope": encode({"plane": "live", "batch": "b", "run": "c0#1"})}


async def test_no_role_is_told_of_an_imported_batch_and_who_names_it_is_told_why(looked_at: Batch) -> None:
    """It is open, and nobody's work: a planner that was started for it would wait for ever."""
    bus = looked_at.bus
    assert await bus.batches() == []
    assert await bus.all_batches() == {looked_at.name: BatchStatus.OPEN}
    catalogue = Catalogue(bus, None, looked_at.name)
    assert await catalogue.open_batches() == []
    with pytest.raises(InputError, match="batch 'b' was imported, to look at"):
        await catalogue.ended()
    for step in (bus.create(looked_at.spec), bus.rebind(looked_at.name, looked_at.runs[1], 1, "candidate", "judge")):
        with pytest.raises(InputError, match="batch 'b' was imported, to look at"):
            await step


# --- half of it ---------------------------------------------------------------------------------------------


async def test_half_an_import_is_no_batch_and_the_next_one_begins_anew(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process dies before each of its writes in turn, having written another history of that name before."""
    await batch.admit()
    await batch.scored()
    other = await exported(batch)
    await emptied(batch)
    await batch.bus.create(batch.spec)
    lines = await whole_history(batch)
    await emptied(batch)
    await imported(batch.bus, lines, tmp_path / "h.jsonl")
    whole = await keys_of(batch.wire)
    await emptied(batch)
    monkeypatch.setattr("bus.imported.writing._AT_ONCE", 3)
    write, finish = Import._write, Import.finish
    for cut in itertools.count(1):
        writes = itertools.count(1)

        async def dies(self: Import, cut: int = cut, writes: Iterator[int] = writes) -> None:
            if next(writes) == cut:
                raise ServerUnreachable("killed")
            await write(self)

        monkeypatch.setattr(Import, "_write", dies)
        try:
            await imported(batch.bus, lines, tmp_path / "h.jsonl")
        except ServerUnreachable:
            assert (await batch.bus.all_batches(), await batch.bus.info(batch.name)) == ({}, None)
            with pytest.raises(InputError, match="was imported"):
                await batch.bus.create(batch.spec)
        else:
            break
        # What the next one finds is another history's, too: nothing of it may stay.
        monkeypatch.setattr(Import, "finish", killed)
        with pytest.raises(ServerUnreachable):
            await imported(batch.bus, other, tmp_path / "other.jsonl")
        monkeypatch.setattr(Import, "finish", finish)
    assert cut > 5
    assert await keys_of(batch.wire) == whole


async def test_of_two_imports_of_a_name_the_later_one_comes_to_its_end(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier one has written half; it finds at its next write that the name is no longer its own."""
    lines = await whole_history(batch)
    await emptied(batch)
    monkeypatch.setattr("bus.imported.writing._AT_ONCE", 5)
    half = len(lines) // 2
    file = tmp_path / "h.jsonl"
    file.write_bytes(b"".join(lines))
    with checked(str(file), None) as source:
        first, read = Import(batch.bus.link, batch.keys, source.header, "first"), Lines(source.name)
        await first.begin()
        read.first(lines[0])
        await put(first, read, lines[1:half])
        await put_back(batch.bus, source)
        with pytest.raises(InputError, match="another import of batch 'b' has begun"):
            await put(first, read, lines[half:])
        await first.give_up()
    assert await exported(batch) == lines


async def put(one: Import, read: Lines, lines: Sequence[bytes]) -> None:
    """Some entries."""
    for raw in lines:
        told = read.next(raw)
        assert isinstance(told, Told)
        await one.add(told)


async def test_a_batch_that_is_declared_just_then_keeps_its_name(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the import's look and its mark. The batch's scripts go on as if nothing had been."""
    lines = await whole_history(batch)
    await emptied(batch)
    send = Link.command

    async def slow(self: Link, *command: str | bytes | int) -> Reply:
        if command[0] == "HSET" and not await batch.wire.call("EXISTS", batch.keys.history):
            await batch.bus.create(batch.spec)
        return await send(self, *command)

    monkeypatch.setattr(Link, "command", slow)
    with pytest.raises(InputError, match="batch 'b' is on this server already"):
        await imported(batch.bus, lines, tmp_path / "h.jsonl")
    await batch.admit()
    await batch.check()
    assert "imported" not in await batch.wire.call("HKEYS", batch.keys.batch_row)


# --- beside prune -------------------------------------------------------------------------------------------


async def test_a_pruned_batch_s_archive_is_imported_over_its_tombstone_and_pruned_again(
    batch: Batch, tmp_path: Path
) -> None:
    """Also where the prune was interrupted: what it left of the batch does not come between."""
    lines = await whole_history(batch)
    for clearing in (True, False):
        plan = await make_plan(batch.bus, [batch.name], [])
        if clearing:
            await prune(batch.bus, plan, tmp_path, Console(file=io.StringIO()))
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("workers.histories.pruning.clear", killed)
                with pytest.raises(ServerUnreachable):
                    await prune(batch.bus, plan, tmp_path, Console(file=io.StringIO()))
        tombstone = await batch.bus.tombstone(batch.name)
        assert tombstone is not None
        assert tombstone.cleared is clearing
        with checked(tombstone.file, None) as source:
            await put_back(batch.bus, source)
        assert await exported(batch) == lines
        assert await batch.bus.tombstones() == {}
        # An interrupted prune goes on at the next one, whatever that is called for: not with what was imported.
        await prune(batch.bus, await make_plan(batch.bus, [], [parse_rule("*")]), tmp_path, Console(file=io.StringIO()))
        assert await exported(batch) == lines


async def killed(*_: object) -> int:
    """In the place of a step: the process is killed before it."""
    raise ServerUnreachable("killed")


# --- size ---------------------------------------------------------------------------------------------------


async def test_memory_does_not_grow_with_the_entries(batch: Batch, tmp_path: Path) -> None:
    """One run, and refusals without end: four times as many take as much memory as one time."""
    await batch.admit()
    held = await batch.claimed()
    late = replace(held.ref, gen=Gen(9))
    files = []
    for total in (400, 1_600):
        while int((await batch.wire.call("XINFO", "STREAM", batch.keys.history))[1]) < total:
            await asyncio.gather(*[batch.bus.append(late, EMPTY_HEAD, 1, ["x" * 200]) for _ in range(500)])
        files.append(tmp_path / f"{total}.jsonl")
        files[-1].write_bytes(b"".join(await exported(batch)))
    peaks = []
    for file in files:
        await emptied(batch)
        with checked(str(file), None) as source:
            tracemalloc.start()
            await put_back(batch.bus, source)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert b"".join(await exported(batch)) == file.read_bytes()
    assert peaks[1] < 1.5 * peaks[0], peaks


# --- as a command -------------------------------------------------------------------------------------------


def evalbus(*words: object) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def test_the_commands_that_look_work_on_it_and_those_that_act_say_what_it_is(server: Target, tmp_path: Path) -> None:
    """Packed, off one server and back; each command says of it what it said before."""
    there = ("--url", f"unix://{server.path}")
    suite = Stage(tmp_path).suite([case("c0"), case("c1"), case("c2")])
    file, again = tmp_path / "b.jsonl.zst", tmp_path / "again.jsonl.zst"
    looking = [["status", "b"], ["gate", "b"], ["replay", "b"], ["why", "b", "c1#1"], ["explain", "b", "c1#1"]]

    async def play() -> None:
        batch = await Batch.open(server.address(), limits=FIRST_BUDGET)
        await whole_history(batch)
        await batch.aclose()

    async def empty() -> None:
        wire = await Wire.open(server.address())
        await wire.call("FLUSHALL")
        wire.close()

    asyncio.run(play())
    assert evalbus("export", "b", file, *there).exit_code == 0
    said = [evalbus(*words, *there) for words in looking]
    asyncio.run(empty())

    done = evalbus("import", file, *there)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "batch b (live) can be looked at: closed, " in done.stderr
    refused = evalbus("import", file, *there)
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("evalbus: batch 'b' is on this server already (import it into another one")
    # What an ended run said of itself stands in no history.
    assert [one.output.replace("   it raised", "") for one in said] == [
        evalbus(*words, *there).output for words in looking
    ]
    assert [one.exit_code for one in said] == [0] * len(looking)
    assert evalbus("export", "b", again, *there).exit_code == 0
    assert again.read_bytes() == file.read_bytes()
    for acting in (["run", suite, "--batch", "b"], ["rescore", "b", "--judge", suite, "--batch", "new"]):
        refused = evalbus(*acting, *there)
        assert refused.exit_code == 2
        assert refused.stderr.startswith("evalbus: batch 'b' was imported, to look at: nothing can be run in it")


def test_a_file_that_is_not_true_or_not_whole_ends_the_command_with_its_code(server: Target, tmp_path: Path) -> None:
    """5 for the one, 2 for the other; one line, and no batch."""
    there = ("--url", f"unix://{server.path}")
    file = tmp_path / "b.jsonl"

    async def play() -> bytes:
        batch = await Batch.open(server.address(), limits=FIRST_BUDGET)
        lines = await whole_history(batch)
        await emptied(batch)
        await batch.aclose()
        return b"".join(lines)

    text = asyncio.run(play())
    for content, code in (
        (text.replace(b'"verb":"commit"', b'"verb":"reject"', 1), 5),
        (text[:-40], 2),
        (b"no history\n", 2),
        (b"", 2),
    ):
        file.write_bytes(content)
        done = evalbus("import", file, *there)
        assert (done.exit_code, done.stderr.count("\n")) == (code, 1), done.stderr
    assert evalbus("import", tmp_path / "nothing.jsonl", *there).exit_code == 2
    assert evalbus("status", *there).stdout == "no batches on this server\n"


async def test_what_can_be_read_once_only_is_imported_too(batch: Batch, tmp_path: Path) -> None:
    """A pipe, as a shell makes one of `<(zstd -dc …)`: it is replayed and written from a copy."""
    lines = await whole_history(batch)
    await emptied(batch)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"".join(lines),))
    writer.start()
    with checked(str(pipe), None) as source:
        await put_back(batch.bus, source)
    writer.join()
    assert await exported(batch) == lines
