"""A pool with hundreds of small batches open at once: what it asks the server, and in how many round trips."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import structlog

from bus.cluster import ShardedBus
from bus.errors import ServerUnreachable
from bus.keys import SHARDS, shard_of
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.memory.restart import Saved, go_back, saved
from bus.port import BatchSpec, Entry, Group, Held, NextRuns, Ref
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.topology import Topology
from bus.types import BatchId, ConsumerId, Decision, Digest, Gen, LeaseId, RunId, Verb
from bus.wire import Wire
from tests.batches import FixedDoor, calls_of
from tests.judge_stage import SAYS
from tests.suites import COMPARED, make_suite
from tests.waiting import PATIENCE, soon, until
from workers import catalogue as catalogues
from workers.batch_spec import spec_of
from workers.catalogue import Catalogue
from workers.consumer import Consumer
from workers.planner import Planner
from workers.runtime import SystemRuntime
from workers.scorer import ScorerRole
from workers.suite import Suite, load_suite
from workers.worker import Worker

W, P = ConsumerId("w"), ConsumerId("p")
RUNS = [RunId("a#1"), RunId("b#1"), RunId("c#1")]


def names(count: int) -> list[BatchId]:
    """Of so many batches."""
    return [BatchId(f"n{number:04}") for number in range(count)]


# --- what is read -----------------------------------------------------------------------------------------


@pytest.fixture
async def bus(server: Target) -> AsyncIterator[RedisBus]:
    """A process's own."""
    made = RedisBus(FixedDoor(server.address()), SystemRuntime())
    yield made
    await made.aclose()


async def declare(bus: RedisBus, batches: Sequence[BatchId]) -> None:
    """Batches of three runs each."""
    for name in batches:
        spec = BatchSpec(
            batch=name, suite="s", suite_digest=Digest("0" * 64), suite_path="/s", intended=len(RUNS), quorum=1,
            bins=("pass", "fail"), bound=64, max_in_flight=64, max_deliveries=5, lease_ms=10_000,
        )  # fmt: skip
        assert (await bus.create(spec)).applied


async def admit(bus: RedisBus, batches: Sequence[BatchId]) -> None:
    """All of their runs."""
    for name in batches:
        assert (await bus.admit(name, NextRuns(0, RUNS, (), P, "candidate", "judge"))).applied


async def asked(server: Target, command: str, doing: Awaitable[object]) -> int:
    """How many of a command the server was sent meanwhile."""
    wire = await Wire.open(server.address())
    before = (await calls_of(wire))[command]
    await doing
    after = (await calls_of(wire))[command]
    wire.close()
    return after - before


async def test_a_look_at_many_batches_without_work_takes_an_eighth_of_as_many_reads(
    server: Target, bus: RedisBus
) -> None:
    """One for each was a second of round trips at 300 batches, before anything could be waited for."""
    batches = names(80)
    await declare(bus, batches)
    assert await asked(server, "xreadgroup", bus.read_now(Group.WORKER, W, batches, 64)) == 80 / 8


async def test_what_many_batches_have_is_read_once_and_never_more_than_there_is_room_for(bus: RedisBus) -> None:
    """COUNT is the server's bound for each stream, and the room is ours for all of them."""
    batches = names(12)
    await declare(bus, batches)
    await admit(bus, batches)
    found = []
    while entries := await bus.read_now(Group.WORKER, W, batches, 5):
        assert len(entries) <= 5
        found += entries
    assert Counter((entry.batch, entry.run) for entry in found) == {(name, run): 1 for name in batches for run in RUNS}


async def test_no_batch_is_first_for_ever(bus: RedisBus) -> None:
    """The last of many by name would wait until all others had nothing more to do."""
    batches = names(4)
    await declare(bus, batches)
    await admit(bus, batches)
    first = [(await bus.read_now(Group.WORKER, W, batches, 1))[0].batch for _ in batches]
    assert sorted(first) == batches


async def test_entries_of_the_silent_are_taken_only_where_there_are_some(server: Target, bus: RedisBus) -> None:
    """Each fifth of a lease time a role looks: most batches have none, and are asked all at once."""
    batches = names(20)
    await declare(bus, batches)
    await admit(bus, batches[7:8])
    silent = ConsumerId("silent")
    assert len(await bus.read(Group.WORKER, silent, batches[7:8], 64, 1)) == len(RUNS)
    taken: list[object] = []

    async def take() -> None:
        taken.extend(await bus.take_idle(Group.WORKER, W, batches, 2, 0))

    assert await asked(server, "xautoclaim", take()) == 1
    assert len(taken) == 2


async def test_leases_of_many_batches_are_renewed_at_once(bus: RedisBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far from the server, one batch after another would take longer than a lease lasts."""
    barrier, decision = asyncio.Barrier(3), Decision(Verb.COMMIT)
    refs = [Ref(name, RUNS[0], LeaseId("0" * 32), Gen(1)) for name in names(3)]

    async def beat(*told: object) -> dict[Ref, Decision]:
        await barrier.wait()
        [leases] = [one for one in told if isinstance(one, list) and one]
        return dict.fromkeys(leases, decision)

    monkeypatch.setattr(bus, "_beat", beat)
    assert await soon(bus.heartbeat(Group.WORKER, W, Held(refs, []))) == [decision] * 3


# --- what a planner does ----------------------------------------------------------------------------------


class Meeting(MemoryBus):
    """One whose named method answers nobody before so many ask at once."""

    method = ""
    barrier: asyncio.Barrier
    calls: Counter[str]

    def __getattribute__(self, name: str) -> Any:  # noqa: ANN401 - whatever the bus has under this name
        """The bus's own; a call of the method is counted, and waits."""
        found = super().__getattribute__(name)
        if name != super().__getattribute__("method"):
            return found

        async def call(*args: object, **named: object) -> object:
            self.calls[str(args[0])] += 1
            await self.barrier.wait()
            return await found(*args, **named)

        return call


def meeting(method: str, parties: int) -> Meeting:
    """An empty bus."""
    runtime = SystemRuntime()
    bus = Meeting(MemoryWorld(runtime), runtime)
    bus.method, bus.barrier, bus.calls = method, asyncio.Barrier(parties), Counter()
    return bus


async def test_a_planner_does_what_is_to_be_done_for_many_batches_at_once(tmp_path: Path) -> None:
    """One after another, each would wait for the answers of all before it."""
    bus, suite = meeting("admit", 5), make_suite(tmp_path / "suite")
    for name in names(5):
        assert (await bus.create(spec_of(suite, name))).applied
    planner = Planner(bus, SystemRuntime(), P, Catalogue(bus, suite))
    planning = asyncio.create_task(planner.run())
    await until(lambda: bus.calls.total() == 5 and not bus.barrier.n_waiting, "five admissions at once")
    planner.stop()
    await soon(planning)


class Still(SystemRuntime):
    """One whose clock stands."""

    def now(self) -> float:
        """Always the same."""
        return 0.0


async def test_a_wake_up_of_one_batch_has_no_other_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With three hundred open, each run's end was three hundred looks at counters. Those come once a second."""
    bus, suite = meeting("counters", 1), make_suite(tmp_path / "suite")
    quiet, busy = names(2)
    for name in (quiet, busy):
        assert (await bus.create(spec_of(suite, name))).applied
    planner = Planner(bus, Still(), P, Catalogue(bus, suite))
    looks: list[Counter[str]] = []

    async def wake_ups(_batches: list[BatchId]) -> list[Entry]:
        looks.append(Counter(bus.calls))
        if len(looks) == 1:
            return []
        planner.stop()
        return await bus.read(Group.WORKER, W, [busy], 1, 1)

    monkeypatch.setattr(planner, "_wake_ups", wake_ups)
    await soon(planner.run())
    [before, between], after = looks, bus.calls
    assert between[quiet] > before[quiet] == 0
    assert (after[quiet], after[busy] > between[busy]) == (between[quiet], True)


class Unconfirmed(MemoryBus):
    """One whose disk takes its time."""

    durable: asyncio.Event

    async def confirm(self, batch: BatchId) -> None:
        """See Bus."""
        await self.durable.wait()


async def test_batches_close_while_the_disk_has_none_of_them_yet(tmp_path: Path) -> None:
    """It takes a second, and where that was waited for after each close, a batch closed a second. None is told of."""
    world, runtime = MemoryWorld(SystemRuntime()), SystemRuntime()
    suite = make_suite(tmp_path / "suite", COMPARED, agent_DOT_py=SAYS)
    bus = Unconfirmed(world, runtime)
    bus.durable = asyncio.Event()
    for name in names(3):
        assert (await bus.create(spec_of(suite, name))).applied
    planner = Planner(bus, runtime, P, Catalogue(bus))
    worker, scorer = Worker(bus, runtime, W, tmp_path / "w"), ScorerRole(bus, runtime, W, tmp_path / "s")
    runs = Consumer(bus, runtime, Group.WORKER, W, Catalogue(bus), worker)
    scores = Consumer(bus, runtime, Group.SCORER, W, Catalogue(bus), scorer)
    with structlog.testing.capture_logs() as logged:
        planning, *others = [asyncio.create_task(role.run()) for role in (planner, runs, scores)]
        async with asyncio.timeout(PATIENCE):
            while await bus.batches():
                await asyncio.sleep(0.01)
        for role in (planner, runs, scores):
            role.stop()
        await soon(asyncio.gather(*others))
        assert not planning.done()
        assert not [line for line in logged if line["event"] == "batch.closed"]
        bus.durable.set()
        await soon(planning)
    assert sorted(line["batch"] for line in logged if line["event"] == "batch.closed") == names(3)


class Forgetful(MemoryBus):
    """A planner's own, whose server dies before its disk has the first close, and is back without it."""

    before: Saved | None = None
    closes = 0
    looked: asyncio.Event

    async def batches(self) -> list[BatchId]:
        """See Bus."""
        if self.closes:
            self.looked.set()
        return await super().batches()

    async def close(self, batch: BatchId, snapshot_id: str, accepted: int) -> Decision:
        """See Bus."""
        self.closes += 1
        if self.closes == 1:
            self.before = saved(self._world)
        return await super().close(batch, snapshot_id, accepted)

    async def confirm(self, batch: BatchId) -> None:
        """See Bus. By then the planner has found that the batch has ended."""
        await self.looked.wait()
        if self.before is not None:
            before, self.before = self.before, None
            go_back(self._world, before)


@pytest.mark.parametrize("is_its_only", [True, False], ids=["for-one-batch", "for-all"])
async def test_a_close_that_the_server_has_lost_is_made_again_and_told_of_once(
    tmp_path: Path, is_its_only: bool
) -> None:
    """The planner of one batch had ended by then, and the batch was open for ever; and its log told of a close."""
    [name], runtime = names(1), SystemRuntime()
    world, suite = MemoryWorld(runtime), make_suite(tmp_path / "suite", COMPARED, agent_DOT_py=SAYS)
    bus, others = Forgetful(world, runtime), MemoryBus(world, runtime)
    bus.looked = asyncio.Event()
    assert (await bus.create(spec_of(suite, name))).applied
    planner = Planner(bus, runtime, P, Catalogue(bus, only=name if is_its_only else None))
    worker, scorer = Worker(others, runtime, W, tmp_path / "w"), ScorerRole(others, runtime, W, tmp_path / "s")
    runs = Consumer(others, runtime, Group.WORKER, W, Catalogue(others), worker)
    scores = Consumer(others, runtime, Group.SCORER, W, Catalogue(others), scorer)
    with structlog.testing.capture_logs() as logged:
        planning, *working = [asyncio.create_task(role.run()) for role in (planner, runs, scores)]
        if not is_its_only:
            await until(lambda: bus.closes == 2, "the second close")
            planner.stop()
        await soon(planning)
        for role in (runs, scores):
            role.stop()
        await soon(asyncio.gather(*working))
    told = [line["event"] for line in logged if line["event"].startswith(("batch.closed", "close."))]
    assert (told, await bus.batches()) == (["close.lost", "batch.closed"], [])


# --- what a catalogue does --------------------------------------------------------------------------------


async def test_many_batches_of_one_suite_are_met_at_once_and_load_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of them, one after another, kept a role from its work for seconds."""
    bus, suite = meeting("info", 6), make_suite(tmp_path / "suite")
    for name in names(6):
        assert (await bus.create(spec_of(suite, name))).applied
    loaded: list[Path] = []
    prepared: list[BatchId] = []
    monkeypatch.setattr(catalogues, "load_suite", _noting(loaded))
    catalogue = Catalogue(bus, prepare=lambda _suite, spec: prepared.append(spec.batch))
    served = await soon(catalogue.open_batches())
    assert [one.batch for one in served] == names(6)
    assert (len(loaded), len(prepared)) == (1, 1)


async def test_what_one_look_has_loaded_says_nothing_of_the_next(tmp_path: Path) -> None:
    """The directory may be in another state by then, and with it the code that a run would start."""
    bus, suite = meeting("", 1), make_suite(tmp_path / "suite")
    first, second = names(2)
    assert (await bus.create(spec_of(suite, first))).applied
    catalogue = Catalogue(bus)
    assert [one.batch for one in await catalogue.open_batches()] == [first]
    assert (await bus.create(spec_of(suite, second))).applied
    (suite.root / "more.txt").write_text("more")
    assert [one.batch for one in await catalogue.open_batches()] == [first]


async def test_of_many_new_batches_each_that_cannot_be_served_is_refused_by_itself(tmp_path: Path) -> None:
    """What is wrong with one is no word about the next, of the same suite or of another."""
    bus, suite = meeting("", 1), make_suite(tmp_path / "suite")
    gone = make_suite(tmp_path / "gone")
    for name, one in zip(names(4), (suite, gone, suite, gone), strict=True):
        assert (await bus.create(spec_of(one, name))).applied
    shutil.rmtree(gone.root)
    assert [one.batch for one in await Catalogue(bus).open_batches()] == [names(4)[0], names(4)[2]]


def _noting(loaded: list[Path]) -> Callable[[Path], Suite]:
    def load(path: Path) -> Suite:
        loaded.append(path)
        return load_suite(path)

    return load


# --- what a cluster's bus remembers -----------------------------------------------------------------------


class _Registries:
    """Registries of one that lives for years: thousands of batches have ended."""

    def __init__(self) -> None:
        self.searched = 0
        self.named: dict[int, dict[str, str]] = {shard: {} for shard in range(SHARDS)}

    async def read(self) -> Mapping[int, Mapping[str, str]]:
        """All of them."""
        return self.named

    async def find(self, batch: BatchId) -> int | None:
        """Where it is."""
        self.searched += 1
        return next((shard for shard, named in self.named.items() if batch in named), None)


async def test_where_a_batch_is_is_remembered_of_the_open_ones_and_of_some_that_were_asked_for() -> None:
    """A registry names all that there ever were; a role that lives for years must not."""
    bus = ShardedBus(cast("Topology", None), SystemRuntime())
    registries = _Registries()
    bus._registries = registries  # type: ignore[assignment]
    ended, still = names(5_000), [BatchId("open-1"), BatchId("open-2")]
    for number, name in enumerate([*ended, *still]):
        registries.named[number % SHARDS][name] = "closed" if number < len(ended) else "open"
    assert await bus.batches() == still
    assert bus._open.keys() == set(still)
    assert not bus._asked
    for number, name in enumerate(ended[:1_500]):
        assert (await bus.of(name)).shard == number % SHARDS
    assert len(bus._asked) == 1_000
    assert registries.searched == 1_500
    assert [(await bus.of(name)).shard for name in (ended[1_499], still[0])] == [1_499 % SHARDS, 5_000 % SHARDS]
    assert registries.searched == 1_500


async def test_a_batch_to_be_declared_beside_another_is_looked_for_there() -> None:
    """Until it is in a registry, its own name leads to another shard."""
    bus = ShardedBus(cast("Topology", None), SystemRuntime())
    registries = _Registries()
    bus._registries = registries  # type: ignore[assignment]
    other = next(name for name in names(99) if shard_of(name) != shard_of(BatchId("new")))
    registries.named[shard_of(other)][other] = "closed"
    assert (await bus.of(BatchId("new"))).shard == shard_of(BatchId("new"))
    await bus.put_beside(BatchId("new"), other)
    assert (await bus.of(BatchId("new"))).shard == shard_of(other)
    elsewhere = (shard_of(other) + 1) % SHARDS
    registries.named[elsewhere][BatchId("old")] = "closed"
    await bus.put_beside(BatchId("old"), other)
    assert (await bus.of(BatchId("old"))).shard == elsewhere


async def test_of_shards_that_fail_together_nothing_is_told_but_the_first(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two primaries of a cluster that stall are two lines at a stop, and not a traceback for each beat and shard."""
    bus = ShardedBus(cast("Topology", None), SystemRuntime())
    registries = _Registries()
    bus._registries = registries  # type: ignore[assignment]
    both = asyncio.Barrier(2)

    async def fails(*_: object) -> list[Decision]:
        await both.wait()
        raise ServerUnreachable("no answer")

    refs = []
    for shard, name in enumerate(names(2)):
        registries.named[shard][name] = "open"
        monkeypatch.setattr(bus.shard(shard), "heartbeat", fails)
        refs.append(Ref(name, RunId("a#1"), LeaseId("0" * 32), Gen(1)))
    with pytest.raises(ServerUnreachable):
        await soon(bus.heartbeat(Group.WORKER, W, Held(refs, [])))
    gc.collect()
    assert "never retrieved" not in caplog.text
