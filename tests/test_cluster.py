"""A cluster: batches are spread over its shards, and found again wherever their slot went."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bus.cluster import ShardedBus, open_bus
from bus.connection import Endpoint, check_fit
from bus.errors import InputError, ServerUnfit, ServerUnreachable
from bus.history import read_history
from bus.keys import SHARDS, shard_of, slot_of
from bus.port import BatchSpec, BatchStatus, Entry, Group, Held, NextRuns, Ref
from bus.server_url import parse_url
from bus.target import Cluster, Target, Tls
from bus.types import BatchId, ConsumerId, Decision, Digest, Gen, LeaseId, Plane, RunId, Verb
from tests.clustered import Clustered, clustered
from tests.fleet import Stage, case, eventually, read_export
from tests.servers import RealServer, free_port, running
from tests.waiting import PATIENCE, until
from workers.runtime import SystemRuntime

W1, W2 = ConsumerId("w1"), ConsumerId("w2")


@pytest.fixture(scope="module")
def six() -> Iterator[Clustered]:
    """Three primaries with a replica each. Tests that kill one come last: it stays dead."""
    with clustered() as found:
        yield found


@pytest.fixture
async def bus(six: Clustered) -> AsyncIterator[ShardedBus]:
    """The bus on it."""
    found = bus_on(six)
    yield found
    await found.aclose()


def bus_on(six: Clustered, lease: float = 10.0) -> ShardedBus:
    """A process's own."""
    found = open_bus(Endpoint(parse_url(six.url)), SystemRuntime(), lease=lease)
    assert isinstance(found, ShardedBus)
    return found


def named(shard: int, prefix: str) -> BatchId:
    """A batch that goes to this shard."""
    return next(name for n in range(1_000) if shard_of(name := BatchId(f"{prefix}{n}")) == shard)


def shards_of(six: Clustered) -> dict[int, list[int]]:
    """The shards of each primary, by its port."""
    found: dict[int, list[int]] = {}
    for shard in range(SHARDS):
        port = six.owner(slot_of(Plane.LIVE, shard)).target.port
        found.setdefault(port, []).append(shard)
    return found


def apart(six: Clustered, prefix: str) -> list[BatchId]:
    """A batch for each primary."""
    return [named(shards[0], prefix) for shards in shards_of(six).values()]


async def declared(bus: ShardedBus, batch: BatchId, runs: int = 2, **more: object) -> list[RunId]:
    """Declare a batch and admit its runs."""
    spec = BatchSpec(
        batch=batch, suite="s", suite_digest=Digest("0" * 64), suite_path="/s", intended=runs, quorum=1,
        bins=("pass", "fail"), bound=64, max_in_flight=64, max_deliveries=5, lease_ms=10_000,
    )  # fmt: skip
    assert (await bus.create(replace(spec, **more))).verb is Verb.COMMIT  # type: ignore[arg-type]
    names = [RunId(f"c{number}#1") for number in range(runs)]
    assert (await bus.admit(batch, NextRuns(0, names, (), ConsumerId("p"), "candidate", "judge"))).verb is Verb.COMMIT
    return names


async def taken(bus: ShardedBus, batches: list[BatchId], count: int, consumer: ConsumerId = W1) -> list[Entry]:
    """Read until so many runs are there."""
    found: list[Entry] = []
    while len(found) < count:
        found += await bus.read(Group.WORKER, consumer, batches, count - len(found), 1_000)
    return found


async def claimed(bus: ShardedBus, entry: Entry, lease: str, consumer: ConsumerId = W1) -> Ref:
    """The lease on a run."""
    decision = await bus.claim(entry, LeaseId(lease * 32), consumer)
    assert decision.verb is Verb.COMMIT, decision
    return Ref(entry.batch, entry.run, LeaseId(lease * 32), Gen(int(decision.answer["gen"])))


# --- the URL ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("redis+cluster://a", Target(cluster=Cluster((("a", 6379),)))),
        (
            "redis+cluster://u:p%40@a:1,[::1]:2?tls=true&ssl_check_hostname=false",
            Target(
                username="u", password="p@", tls=Tls(check_hostname=False), cluster=Cluster((("a", 1), ("::1", 2)))
            ),
        ),
    ],
    ids=["short", "whole"],
)  # fmt: skip
def test_a_url_names_some_servers_of_the_cluster(url: str, meant: Target) -> None:
    """What is read is written again in the same sense, and shown without its password."""
    assert parse_url(url) == meant
    assert parse_url(parse_url(url).url) == meant
    assert "p%40" not in parse_url(url).redacted


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+cluster://", "names no server of the cluster"),
        ("redis+cluster://a:x", "'a:x' is no host and port"),
        ("redis+cluster://a/1", "has no databases to choose from"),
        ("redis+cluster://a?ssl_certfil=f", "did you mean ssl_certfile"),
        ("redis+cluster://a?tls=yes", "tls is 'yes'"),
    ],
)
def test_a_wrong_url_is_one_line(url: str, problem: str) -> None:
    """With what is wrong in it."""
    with pytest.raises(InputError, match=problem):
        parse_url(url)


# --- finding it ------------------------------------------------------------------------------------------


def test_slots_are_those_of_the_protocol(six: Clustered) -> None:
    """What is computed here, the server computes too, from any key of the shard."""
    with six.servers[0].client() as client:
        for plane in Plane:
            for shard in range(SHARDS):
                key = f"evb:{{{plane}.{shard}}}:b:x:run:y"
                assert int(client.execute_command("CLUSTER", "KEYSLOT", key)) == slot_of(plane, shard)


async def test_every_primary_is_examined(six: Clustered) -> None:
    """One that may evict keys makes the whole cluster unfit, and it is named."""
    facts = await check_fit(parse_url(six.url))
    assert facts.role == "master"
    last = six.owner(16383)
    with last.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(ServerUnfit, match=f"{last.target.port}/0: its maxmemory-policy is allkeys-lru"):
            await check_fit(parse_url(six.url))
        client.config_set("maxmemory-policy", "noeviction")


async def test_one_server_of_a_cluster_is_no_single_server(six: Clustered) -> None:
    """It has a part of the keys only; the line says which URL is meant."""
    with pytest.raises(ServerUnfit, match=r"one of a cluster \(write redis\+cluster://HOST:PORT\)"):
        await check_fit(six.servers[0].target)


async def test_a_single_server_is_no_cluster_and_nobody_is_unreachable() -> None:
    """The one will not pass; the other may."""
    with running(tcp=True) as single, pytest.raises(ServerUnfit, match="no server of a cluster"):
        await check_fit(parse_url(f"redis+cluster://127.0.0.1:{single.target.port}"))
    with pytest.raises(ServerUnreachable, match="no server at"):
        await check_fit(parse_url(f"redis+cluster://127.0.0.1:{free_port()}"))


async def test_what_wants_a_server_for_itself_is_refused_in_one_line(six: Clustered) -> None:
    """An endpoint of many servers leads to none of them."""
    with pytest.raises(ServerUnfit, match="needs a single server, not a cluster"):
        await Endpoint(parse_url(six.url)).ensure()


async def test_a_dead_server_in_the_url_is_passed_over(six: Clustered) -> None:
    """One that answers is enough."""
    alive = six.servers[1].target.port
    facts = await check_fit(parse_url(f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{alive}"))
    assert facts.product == "valkey"


# --- where a batch is ------------------------------------------------------------------------------------


async def test_batches_are_spread_and_found(six: Clustered, bus: ShardedBus) -> None:
    """Each is on the primary that its name leads to; whoever looks, from wherever, sees them all."""
    names = apart(six, "spread")
    for name in names:
        await declared(bus, name)
    for name in names:
        slot = slot_of(Plane.LIVE, shard_of(name))
        with six.owner(slot).client() as client:
            assert client.exists((await bus.of(name)).keys(name).batch_row)
    other = bus_on(six)
    assert set(names) <= set(await other.batches())
    assert {name: (await other.all_batches())[name] for name in names} == dict.fromkeys(names, BatchStatus.OPEN)
    assert [(await other.counters(name)).admitted for name in names] == [2, 2, 2]
    assert await other.info(BatchId("nobody-s")) is None
    await other.aclose()


async def test_a_batch_that_scores_another_anew_is_put_beside_it(six: Clustered, bus: ShardedBus) -> None:
    """The script that takes the runs over reads both; and everybody finds it there, not where its name leads."""
    source = named(1, "source")
    await declared(bus, source)
    anew = named(2, "anew")
    await bus.put_beside(anew, source)
    info = await bus.info(source)
    assert info is not None
    assert (await bus.create(replace(info.spec, batch=anew, source=source))).verb is Verb.COMMIT
    other = bus_on(six)
    assert (await other.of(anew)).shard == 1
    assert (await other.info(anew)) is not None
    await other.aclose()


async def test_only_shards_that_are_worked_on_are_connected_to(six: Clustered) -> None:
    """To look at all sixteen takes a connection a primary."""
    await until(lambda: not connections(six).total(), "the servers to have let go of everybody before")
    looking = bus_on(six)
    await looking.batches()
    assert +connections(six) == Counter({one.target.port: 1 for one in primaries(six)})
    await looking.aclose()


def primaries(six: Clustered) -> list[RealServer]:
    """Those that have slots."""
    return list({six.owner(slot).target.port: six.owner(slot) for slot in (0, 8000, 16383)}.values())


def blocked(server: RealServer) -> bool:
    """Whether a client waits there."""
    with server.client() as client:
        return int(client.info("clients")["blocked_clients"]) > 0


def connections(six: Clustered) -> Counter[int]:
    """Of clients of ours, at each server."""
    found: Counter[int] = Counter()
    for one in six.alive:
        with one.client() as client:
            found[one.target.port] = sum(line["name"] == "evalbus" for line in client.client_list())
    return found


# --- serving several shards ------------------------------------------------------------------------------


async def test_a_consumer_gets_no_more_than_it_has_room_for(six: Clustered, bus: ShardedBus) -> None:
    """Three shards have two runs each: three at a time, all six in the end, and none twice."""
    names = apart(six, "room")
    for name in names:
        await declared(bus, name)
    seen: list[tuple[BatchId, str]] = []
    while len(seen) < 6:
        found = await bus.read(Group.WORKER, W1, names, 3, 1_000)
        assert len(found) <= 3
        seen += [(entry.batch, entry.run) for entry in found]
    assert len(set(seen)) == 6
    mine = await bus.own_pending(Group.WORKER, W1, names, 100)
    assert {(entry.batch, entry.run) for entry in mine} == set(seen)
    await bus.heartbeat(Group.WORKER, W1, Held(entries=mine))
    taken_over = await bus.take_idle(Group.WORKER, W2, names, 4, 0)
    assert len(taken_over) == 4


async def test_a_read_waits_for_whichever_shard_has_something_first(six: Clustered, bus: ShardedBus) -> None:
    """It waits at one shard at a time, and does not stay there."""
    names = apart(six, "wait")
    for name in names:
        await declared(bus, name, intended=3)
    await taken(bus, names, 6)
    for late in names:
        reading = asyncio.create_task(bus.read(Group.WORKER, W1, names, 5, 30_000))

        async def waits() -> bool:
            return await asyncio.to_thread(lambda: any(blocked(one) for one in six.alive))

        await eventually(waits, "the read to wait somewhere")
        assert (
            await bus.admit(late, NextRuns(2, [RunId("late#1")], (), ConsumerId("p"), "c", "j"))
        ).verb is Verb.COMMIT
        async with asyncio.timeout(PATIENCE):
            assert [(entry.batch, entry.run) for entry in await reading] == [(late, "late#1")]


async def test_leases_are_renewed_at_every_shard(six: Clustered, bus: ShardedBus) -> None:
    """One beat for all, and an answer a lease in the order in which they were given."""
    names = apart(six, "beat")
    for name in names:
        await declared(bus, name)
    entries = await taken(bus, names, 6)
    refs = [await claimed(bus, entry, f"{number:x}") for number, entry in enumerate(entries)]
    lost = replace(refs[3], gen=Gen(99))
    said = await bus.heartbeat(Group.WORKER, W1, Held([*refs[:3], lost, *refs[4:]], []))
    assert [decision.applied for decision in said] == [True, True, True, False, True, True]


async def test_a_shard_that_does_not_answer_costs_no_lease_of_the_others(
    six: Clustered, bus: ShardedBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One beat is for all shards and waits for all: while one primary is being replaced, the others are told again."""
    names = apart(six, "silent")[:2]
    for name in names:
        await declared(bus, name)
    entries = await taken(bus, names, 4)
    refs = [await claimed(bus, entry, f"{number:x}") for number, entry in enumerate(entries)]
    silent, quick = [await bus.of(name) for name in names]
    back, again, told = asyncio.Event(), asyncio.Event(), [silent.heartbeat, quick.heartbeat]
    beats = 0

    async def no_answer(group: Group, consumer: ConsumerId, held: Held) -> list[Decision]:
        await back.wait()
        return await told[0](group, consumer, held)

    async def counted(group: Group, consumer: ConsumerId, held: Held) -> list[Decision]:
        nonlocal beats
        beats += 1
        if beats == 3:
            again.set()
        return await told[1](group, consumer, held)

    monkeypatch.setattr(silent, "heartbeat", no_answer)
    monkeypatch.setattr(quick, "heartbeat", counted)
    beating = asyncio.create_task(bus.heartbeat(Group.WORKER, W1, Held(refs, [])))
    async with asyncio.timeout(PATIENCE):
        await again.wait()
    assert not beating.done()
    back.set()
    assert [decision.applied for decision in await beating] == [True] * 4


# --- when slots move -------------------------------------------------------------------------------------


async def test_a_slot_that_was_moved_is_followed(six: Clustered, bus: ShardedBus) -> None:
    """MOVED: the next connection leads to the new owner.

    That is another server, which cannot know whether the old one forgot something: its leases are void, as after a
    restart, and their runs are given again under higher generations.
    """
    shard = 4
    name = named(shard, "moved")
    await declared(bus, name)
    (entry,) = await taken(bus, [name], 1)
    ref = await claimed(bus, entry, "a")
    slot = slot_of(Plane.LIVE, shard)
    to = next(one for one in primaries(six) if one is not six.owner(slot))
    await asyncio.to_thread(six.move, slot, to)
    assert (await bus.heartbeat(Group.WORKER, W1, Held([ref], [])))[0].reason == "stale_lease"
    assert name in await bus.batches()
    (mine,) = await bus.own_pending(Group.WORKER, W1, [name], 10)
    assert (await claimed(bus, mine, "b")).gen > ref.gen
    (second,) = await taken(bus, [name], 1)
    assert second.run == "c1#1"
    with to.client() as client:
        assert client.exists((await bus.of(name)).keys(name).batch_row)


# --- when primaries die: from here on some are dead ------------------------------------------------------


@pytest.mark.process
async def test_a_run_goes_on_when_the_primary_of_its_batch_dies(tmp_path: Path, six: Clustered) -> None:
    """Its replica takes the slots over; every role finds it, every run ends once, and the batch closes."""
    with Stage.opened(tmp_path) as stage:
        cases = [case("first", gate="go"), *(case(f"c{number}") for number in range(6))]
        suite = stage.suite(cases, lease="1s")
        command = stage.start("run", suite, "--workers", 2, "--batch", "b", "--url", six.url, "--json", "out.json")
        bus, batch = bus_on(six), BatchId("b")

        async def waits_for_the_first() -> bool:
            info = await bus.info(batch)
            return info is not None and (await bus.counters(batch)).scored == len(cases) - 1

        await eventually(waits_for_the_first, "all but the first to be scored")
        slot = slot_of(Plane.LIVE, shard_of(batch))
        before = six.owner(slot)
        await asyncio.to_thread(six.kill, before, slot)
        stage.open_gate("go")
        done = await command.end()
        assert done.code == 0, done
        counters = await bus.counters(batch)
        assert (counters.scored, counters.holes) == (len(cases), 0)
        at = await bus.of(batch)
        granted = [
            (entry.envelope["run"], part.answer["gen"])
            async for entry in read_history(at.link, at.keys(batch))
            for part in entry.parts
            if (part.fence, part.op, part.verb) == ("transcript", "lease", "commit")
        ]
        assert len(granted) == len(set(granted))
        assert sum(run == "first#1" for run, _ in granted) > 1
        await bus.aclose()
        exported = await stage.start("export", "b", "h.jsonl", "--url", six.url).end()
        assert exported.code == 0
        assert read_export(stage.root / "h.jsonl")
        replayed = await stage.start("replay", "h.jsonl").end()
        assert replayed.code == 0, replayed
        assert before.target.port != six.owner(slot).target.port


async def test_a_cluster_that_has_lost_slots_is_waited_for_and_then_given_up(six: Clustered) -> None:
    """A primary dies, and whoever could have taken its place: the others say that the cluster is down."""
    patient = bus_on(six)
    assert await patient.batches() is not None
    await patient.aclose()
    bus = open_bus(Endpoint(parse_url(six.url)), SystemRuntime(), patience=0.5)
    await asyncio.to_thread(six.lose, slot_of(Plane.LIVE, 0))
    with pytest.raises(ServerUnreachable):
        await bus.batches()
    await bus.aclose()
