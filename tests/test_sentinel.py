"""Behind Sentinels: the primary is found, also when it is another one by now, and nothing is granted twice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.connection import Endpoint, check_fit
from bus.errors import InputError, ServerUnfit, ServerUnreachable
from bus.history import read_history
from bus.redis_bus import RedisBus
from bus.server_url import parse_url
from bus.target import Sentinel, Target
from bus.types import BatchId, Digest, Durability, Verb
from bus.wire import Wire
from tests.batches import W1, W2, Batch
from tests.fleet import Stage, case, eventually, read_export
from tests.replicated import NAME, Watched, link_is_up, watched
from tests.servers import free_port, wait_for
from workers.runtime import SystemRuntime


@pytest.fixture
def three() -> Iterator[Watched]:
    """A primary, a replica, and two Sentinels."""
    with watched() as found:
        yield found


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("sentinel://a/q", Target(sentinel=Sentinel("q", (("a", 26379),)))),
        (
            "sentinel://u:p%40@a:1,[::1]:2/q/3?sentinel_username=w&sentinel_password=s",
            Target(
                username="u", password="p@", db=3,
                sentinel=Sentinel("q", (("a", 1), ("::1", 2)), username="w", password="s"),
            ),
        ),
    ],
    ids=["short", "whole"],
)  # fmt: skip
def test_a_url_names_the_sentinels_and_the_primary(url: str, meant: Target) -> None:
    """What is read is written again in the same sense, and shown without its secrets."""
    assert parse_url(url) == meant
    assert parse_url(parse_url(url).url) == meant
    assert "p%40" not in parse_url(url).redacted
    assert "=s" not in parse_url(url).redacted


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sentinel://a", "does not say under which name"),
        ("sentinel:///q", "names no Sentinel"),
        ("sentinel://a:x/q", "'a:x' is no host and port"),
        ("sentinel://a/q?sentinel_pasword=s", "did you mean sentinel_password"),
        ("sentinel://a/q?tls=yes", "tls is 'yes'"),
    ],
)
def test_a_wrong_url_is_one_line(url: str, problem: str) -> None:
    """With what is wrong in it."""
    with pytest.raises(InputError, match=problem):
        parse_url(url)


async def test_no_sentinel_and_an_unknown_name_are_told_apart(three: Watched) -> None:
    """The one may pass; the other does not."""
    with pytest.raises(ServerUnreachable, match="no Sentinel answers"):
        await check_fit(parse_url(f"sentinel://127.0.0.1:{free_port()}/{NAME}"))
    with pytest.raises(ServerUnfit, match="knows no primary named 'other'"):
        await check_fit(parse_url(three.url.replace(NAME, "other")))
    facts = await check_fit(parse_url(f"sentinel://127.0.0.1:{free_port()},127.0.0.1:{three.sentinels[1]}/{NAME}"))
    assert facts.role == "master"


async def test_after_a_failover_the_new_primary_grants_higher_generations(three: Watched) -> None:
    """What the old primary granted and the replica never heard of is void, and its number is given to nobody."""
    endpoint = Endpoint(parse_url(three.url))
    await endpoint.ensure()
    batch = await Batch.open(three.primary.target.address(), name="f", runs=2, door=endpoint)
    await batch.admit()
    first = await batch.claimed(W1)
    replica = three.servers[1]
    wait_for(lambda: link_is_up(replica), "the replica")
    with replica.client() as client:  # it hears nothing for a while: what comes now is lost
        client.execute_command("REPLICAOF", "NO", "ONE")
    lost = await batch.claimed(W2, await batch.taken(first.entry, W2))
    assert lost.ref.gen > first.ref.gen
    await asyncio.to_thread(three.kill_primary)
    batch.wire.close()
    batch.wire = await _wire(three)
    refused = await batch.bus.seal(lost.ref, Digest("0" * 64), 1, "late", "", "")
    assert not refused.applied
    again = await batch.claimed(W2, await batch.taken(first.entry, W2))
    assert again.ref.gen > lost.ref.gen
    gens = [
        part.answer["gen"]
        async for entry in read_history(batch.bus.link, batch.keys)
        for part in entry.parts
        if (part.fence, part.op, part.verb) == ("transcript", "lease", "commit")
    ]
    assert len(gens) == len(set(gens))
    await batch.aclose()


async def _wire(three: Watched) -> Wire:
    return await Wire.open(three.primary.target.address())


async def test_a_replica_that_is_still_named_is_not_written_to(three: Watched) -> None:
    """A Sentinel's answer may be old: who connects to a replica asks again, and does not give up."""
    replica = three.servers[1]
    endpoint = Endpoint(replica.target)
    bus = RedisBus(endpoint, SystemRuntime(), patience=0.5)
    with pytest.raises(ServerUnreachable, match="is a replica"):
        await bus.all_batches()
    await bus.aclose()


@pytest.mark.process
async def test_a_run_goes_on_when_the_primary_dies(tmp_path: Path, three: Watched) -> None:
    """Workers, scorers and planner find the new primary by themselves; every run ends once, and the batch closes."""
    with Stage.opened(tmp_path) as stage:
        cases = [case("first", gate="go"), *(case(f"c{number}") for number in range(8))]
        suite = stage.suite(cases, lease="1s")
        command = stage.start("run", suite, "--workers", 2, "--batch", "b", "--url", three.url, "--json", "out.json")
        bus = RedisBus(Endpoint(parse_url(three.url)), SystemRuntime())

        async def waits_for_the_first() -> bool:
            info = await bus.info(BatchId("b"))
            return info is not None and (await bus.counters(BatchId("b"))).scored == len(cases) - 1

        await eventually(waits_for_the_first, "all but the first to be scored")
        await asyncio.to_thread(three.kill_primary)
        stage.open_gate("go")
        done = await command.end()
        assert done.code == 0, done
        counters = await bus.counters(BatchId("b"))
        assert (counters.scored, counters.holes) == (len(cases), 0)
        await bus.aclose()
        exported = await stage.start("export", "b", "h.jsonl", "--url", three.url).end()
        assert exported.code == 0
        assert read_export(stage.root / "h.jsonl")
        replayed = await stage.start("replay", "h.jsonl").end()
        assert replayed.code == 0, replayed


async def test_what_was_licensed_under_strict_survives_the_primary(three: Watched) -> None:
    """WAIT 1: the lease that was handed out is known to whoever takes the primary's place."""
    url = three.url
    for server in three.servers:
        with server.client() as client:
            client.config_set("appendfsync", "always")
    endpoint = Endpoint(parse_url(url))
    await endpoint.ensure()
    batch = await Batch.open(
        three.primary.target.address(), name="s", runs=20, bound=20, door=endpoint, durability=Durability.STRICT
    )
    await batch.admit()
    held = [await batch.claimed(W1) for _ in range(20)]
    await asyncio.to_thread(three.kill_primary)
    batch.wire.close()
    batch.wire = await _wire(three)
    known = await batch.bus.rows(batch.name, [one.ref.run for one in held])
    assert [(row.run, row.gen) for row in known] == [(one.ref.run, one.ref.gen) for one in held]
    assert (await batch.bus.create(batch.spec)).verb is Verb.DUPLICATE
    await batch.aclose()
