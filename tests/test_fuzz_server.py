"""Whatever somebody with a connection writes: entries in a batch's streams, and calls of scripts. On a real server.

No process dies of it, no run is lost, none counted twice; and a script that is not given a command changes nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgpack
import pytest
from hypothesis import strategies as st

from bus.calling import call
from bus.envelopes import decode
from bus.errors import ReplyError
from bus.keys import BatchKeys
from bus.port import BatchStatus, Group
from bus.scripts import Script, all_scripts
from bus.streams import fields_of
from bus.target import Target
from bus.types import ConsumerId, Plane
from bus.wire import Wire
from tests.batches import Batch
from tests.fragile import Fragile
from tests.fuzzing import TRIED, fuzzed
from tests.script_files import kinds_of, source_of
from tests.stage import BATCH, OnServer, Process, Stage
from tests.suites import MINIMAL
from tests.waiting import PATIENCE
from workers.catalogue import Catalogue
from workers.consumer import Consumer
from workers.runtime import SystemRuntime
from workers.tools.serving import JointConsumer, Toolroom
from workers.worker import Worker

KEYS = BatchKeys(Plane.LIVE, BATCH)

# --- stream entries -------------------------------------------------------------------------------------------

SUITE = (
    'lease = "2s"\n'
    + MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"')
    + '[tools.near]\npython = "agent.py:near"\neffects = "none"\nremote = true\n'
)
AGENT = """\
def near(x):
    return x


async def solve(case, run):
    return await run.tools.call("near", x=case.input)
"""
CASES = "".join(f'{{"id": "c{n}", "input": "{n}", "target": "{n % 3}"}}\n' for n in range(6))
RUNS = [f"c{n}#1".encode() for n in range(6)]


class Long(bytes):
    """A word that is too long for any envelope; shown in short."""

    def __repr__(self) -> str:
        """Not all of it."""
        return f"Long({len(self)})"


LONG = Long(b"x" * 70_000)
WORDS = st.sampled_from([*RUNS, b"nobody#1", b"c0", b"", b"near", b"c0#1~0.1.0", LONG]) | st.binary(max_size=40)
NAMES = st.sampled_from([b"run", b"intent", b"tool", b"batch", b"gen", b"lease"]) | st.binary(max_size=12)


@dataclass(frozen=True, slots=True)
class Forged:
    """An entry that no script wrote."""

    stream: str
    fields: Sequence[tuple[bytes, bytes]]

    @property
    def read(self) -> Mapping[str, str]:
        """The fields as a role reads them."""
        return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in self.fields}

    @property
    def unreadable(self) -> bool:
        """Whether it names no run, or more than one. In `results` it only wakes the planner, and is read no further."""
        too_long = sum(len(word.encode()) for word in self.read.values()) > 4_096
        return (too_long or not self.read.get("run")) and self.stream != "results"

    @property
    def letter(self) -> tuple[str, str]:
        """Its stream, and what a dead letter keeps of it."""
        return KEYS.stream(self.stream), json.dumps(self.read)

    async def add(self, wire: Wire) -> None:
        """Append it to its stream."""
        flat = [word for pair in self.fields for word in pair]
        await wire.call("XADD", KEYS.stream(self.stream), "*", *flat)


ENTRIES = st.builds(
    Forged,
    st.sampled_from(["runs", "scores", "results", "tools"]),
    st.lists(st.tuples(NAMES, WORDS), min_size=1, max_size=4),
)


@fuzzed("stream entries", st.lists(ENTRIES, min_size=30, max_size=60), st.integers(0, 3), count=3, shrink=False)
def test_any_entry_in_a_stream(server: Target, entries: list[Forged], early: int) -> None:
    """Some lie there before a role starts, the others come while it works. What names no run is a dead letter."""
    TRIED["stream entries"] += len(entries) - 1
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(_worked(server, Path(directory), entries, len(entries) * early // 3))


def test_an_entry_that_fits_into_no_envelope_ends_no_role(server: Target, tmp_path: Path) -> None:
    """Its run or its intent is too long to be named in a command: each worker that read it would end."""
    entries = [Forged(stream, [(b"run", LONG)]) for stream in ("runs", "scores", "results", "tools")]
    entries.append(Forged("tools", [(b"run", RUNS[0]), (b"intent", LONG)]))
    asyncio.run(_worked(server, tmp_path, entries, len(entries)))


async def _worked(server: Target, root: Path, entries: list[Forged], early: int) -> None:
    wire = await Wire.open(server.address())
    await wire.call("FLUSHALL")
    stage = Stage(OnServer(server), root)
    other = stage.place.bus()
    try:
        await stage.declare(SUITE, agent_DOT_py=AGENT, cases_DOT_jsonl=CASES)
        for entry in entries[:early]:
            await entry.add(wire)
        stage.planner()
        stage.scorer()
        _toolworker(stage, other)
        for entry in entries[early:]:
            await entry.add(wire)
        counters = await stage.closed()
        assert (counters.status, counters.bins, counters.holes) == (BatchStatus.CLOSED, {"pass": 3, "fail": 3}, 0)
        for row in await stage.bus.rows(BATCH, await stage.bus.run_ids(BATCH)):
            assert (row.attempts, row.epoch) == (1, 1), row
        for process in stage.processes:
            await asyncio.wait_for(process.task, PATIENCE)  # ends with its batch, and with no error
        buried = Counter(await _dead_letters(wire))
        assert buried <= Counter(one.letter for one in entries if one.unreadable)  # what came too late is not read
        assert buried >= Counter(one.letter for one in entries[:early] if one.unreadable)
    finally:
        await stage.aclose()
        await other.aclose()
        wire.close()


async def _dead_letters(wire: Wire) -> list[tuple[str, str]]:
    letters = [fields_of(flat) for _, flat in await wire.call("XRANGE", KEYS.dead, "-", "+")]
    assert {one["reason"] for one in letters} <= {"unreadable"}
    return [(one["stream"], one["content"]) for one in letters]


def _toolworker(stage: Stage, other: Any) -> Process:  # noqa: ANN401 - a bus
    fragile, room, runtime, name = Fragile(stage.place.bus(), []), Toolroom(), SystemRuntime(), ConsumerId("both")
    bus = cast("Any", fragile)
    catalogue = Catalogue(bus, stage.suite, BATCH)
    worker = Worker(bus, runtime, name, stage.root / "work" / name, tools_of=room.tools_of(bus, runtime))
    runs = Consumer(bus, runtime, Group.WORKER, name, catalogue, worker, quarantine=room.quarantine)
    return stage._start(fragile, cast("Any", JointConsumer([runs, room.consumer(other, runtime, name, catalogue)])))


# --- calls of scripts -----------------------------------------------------------------------------------------

SCRIPTS = {one.name: one for one in all_scripts() if one.recorded}
FILLED = {
    "<batch>": "b", "<other>": "b", "<run>": "c0#1", "<stream>": "runs", "<conversation>": "0", "<any>": "run:c0#1",
    "<desk>": "runs", "<name>": "model",
}  # fmt: skip
KINDS = {name: kinds_of(one) for name, one in SCRIPTS.items()}
TOKENS = ["b", "c0#1", "c1#1", "L1", "L2", "w1", "s1", "live", "shadow", "0-0", "pass", "worker", "d" * 64]
LIKELY: Mapping[str, st.SearchStrategy[Any]] = {
    "str": st.sampled_from(TOKENS), "int": st.integers(0, 3), "int1": st.integers(1, 3), "bool": st.booleans(),
}  # fmt: skip
VALUES = (
    st.none() | st.booleans() | st.integers(-2, 2**64 - 1) | st.floats() | st.binary(max_size=20) | st.text(max_size=20)
    | st.sampled_from(TOKENS)
)  # fmt: skip


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, bytes]:
    """A script and an envelope: bytes, a map of anything, or nearly what it takes."""
    target = draw(st.sampled_from(list(SCRIPTS)))
    kinds = KINDS[target]
    match draw(st.integers(0, 3)):
        case 0:
            return target, draw(st.binary(max_size=200))
        case 1:
            fields = draw(
                st.dictionaries(st.sampled_from(sorted(kinds) or ["x"]) | st.text(max_size=10), VALUES, max_size=9)
            )
        case _:
            fields = {name: draw(LIKELY[kind.rstrip("?")]) for name, kind in kinds.items()}
            for name in draw(st.lists(st.sampled_from(sorted(kinds)), max_size=2)) if kinds else []:
                fields[name] = draw(VALUES)
    schema = {} if draw(st.integers(0, 9)) == 0 else {"schema": 1}
    return target, cast("bytes", msgpack.packb(schema | fields, unicode_errors="surrogatepass"))


def _keys(one: Script) -> dict[str, object]:
    """The keys that a script's header names, of a real batch."""
    header = source_of(one).partition("]]")[0]
    found = dict(re.findall(r"\d+…?\s+(\w+)\s+(evb:\S+)", header))
    keys: dict[str, object] = {}
    for name in one.keys:
        key = re.sub("<[a-z]+>", lambda hole: FILLED[hole.group()], found[name.removesuffix("…")])
        keys[name.removesuffix("…")] = [key] if name.endswith("…") else key
    return keys


@dataclass(slots=True)
class World:
    """A batch in the middle of its work, and all that is kept of it."""

    runner: asyncio.Runner
    batch: Batch
    state: Mapping[bytes, object]

    async def look(self) -> Mapping[bytes, object]:
        """Every key and what it holds, without what a refusal may add: its record and count, a late event kept."""
        wire, keys = self.batch.wire, self.batch.keys
        there = sorted({*await wire.call("KEYS", "*")} - {keys.history.encode(), keys.dead.encode()})
        found: dict[bytes, object] = dict(zip(there, await wire.calls([("DUMP", key) for key in there]), strict=True))
        flat = await wire.call("HGETALL", keys.batch_row)
        pairs = zip(flat[::2], flat[1::2], strict=True)
        found[keys.batch_row.encode()] = {name: one for name, one in pairs if not name.startswith(b"refused:")}
        return found

    async def entries(self) -> int:
        """The length of the history."""
        return cast("int", await self.batch.wire.call("XLEN", self.batch.keys.history))

    async def send(self, target: Script, envelope: bytes, rest: Sequence[bytes]) -> None:
        """Call a script; see the test."""
        argv: dict[str, object] = {}
        for at, name in enumerate(target.argv):
            given = envelope if at == 0 else rest[at % len(rest)]
            argv[name.removesuffix("…")] = list(rest) if name.endswith("…") else given
        before = await self.entries()
        try:
            answer = await call(self.batch.wire, target, _keys(target), argv)
        except ReplyError:
            understood = False
        else:
            understood = any(one.reason != "schema" for one in (answer if isinstance(answer, list) else [answer]))
        before_it, now = self.state, await self.look()
        self.state = now
        if understood:  # by chance it was a command, and a fence has decided on it
            fields = decode(envelope)
            needed = {name for name, kind in KINDS[target.name].items() if not kind.endswith("?")}
            assert fields["schema"] == 1
            assert needed <= fields.keys()
        else:
            assert [key for key in {*now, *before_it} if now.get(key) != before_it.get(key)] == [], target.name
            assert await self.entries() - before in (0, 1)


@pytest.fixture
def world(server: Target) -> Iterator[World]:
    """Three runs: one that a worker holds, one that a scorer holds, one that waits."""

    async def opened() -> World:
        batch = await Batch.open(server.address())
        await batch.admit()
        await batch.sealed()
        await batch.scoring()
        await batch.claimed()
        one = World(runner, batch, {})
        one.state = await one.look()
        return one

    with asyncio.Runner() as runner:
        one = runner.run(opened())
        yield one
        runner.run(one.batch.aclose())


@fuzzed("script calls", calls(), st.lists(st.binary(max_size=60), min_size=1, max_size=6), count=800)
def test_any_envelope_to_a_script(world: World, sent: tuple[str, bytes], rest: list[bytes]) -> None:
    """A refusal, or an error that says so; and nothing is there that was not, but the record of the refusal."""
    world.runner.run(world.send(SCRIPTS[sent[0]], sent[1], rest))


@fuzzed("script calls", st.sampled_from(list(SCRIPTS)), st.lists(st.binary(max_size=60), max_size=6), count=400)
def test_any_arguments_to_a_script(world: World, target: str, words: list[bytes]) -> None:
    """Not even as many as it takes, and without the counts that tell the commands of one call apart."""
    world.runner.run(_raw(world, SCRIPTS[target], words))


async def _raw(world: World, target: Script, words: list[bytes]) -> None:
    keys = [str(key) for one in _keys(target).values() for key in (one if isinstance(one, list) else [one])]
    before = await world.entries()
    try:
        reply = await world.batch.wire.call("EVAL", target.text, len(keys), *keys, *words)
    except ReplyError:
        pass
    else:
        assert isinstance(reply, list), (target.name, reply)
    assert await world.look() == world.state, target.name
    assert await world.entries() - before in (0, 1)
