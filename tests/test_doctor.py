"""`evalbus doctor` names each illness of a server, says what to do, and its exit code can be relied on."""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from bus.acl import AclRole, rule, user_name
from bus.info import parse_info
from bus.keys import BatchKeys, registry
from bus.target import Tls
from bus.types import BatchId, Plane
from tests.batches import Batch
from tests.servers import RealServer, running
from tests.waiting import PATIENCE
from workers.checkup.batches import judge_left
from workers.checkup.findings import Finding, Level, exit_code
from workers.checkup.machine import judge_machine
from workers.checkup.server import BYTES_PER_CALL, BYTES_PER_RUN, judge_server
from workers.checkup.vitals import Vitals, take_vitals
from workers.cli import app


def doctor(*words: object) -> Result:
    """Its command, in this process. That a machine which does much else answers slowly is no illness of the server."""
    with pytest.MonkeyPatch.context() as patient:
        patient.setattr("workers.checkup.server._SLOW", PATIENCE)
        return CliRunner().invoke(app, ["doctor", *map(str, words)])


def of(findings: list[Finding], question: str) -> list[Finding]:
    """What was said to one question."""
    return [finding for finding in findings if finding.question == question]


@pytest.fixture
def tuned(valkey: RealServer) -> Iterator[Callable[..., None]]:
    """Change settings of the server for one test."""
    with valkey.client() as client:
        before: dict[str, str] = {}

        def tune(**settings: object) -> None:
            for name, value in settings.items():
                word = name.replace("_", "-")
                before.setdefault(word, client.config_get(word)[word])
                client.config_set(word, value)

        yield tune
        for word, value in before.items():
            client.config_set(word, value)


def test_a_server_that_is_well_needs_nothing(any_real_server: RealServer, tmp_path: Path) -> None:
    """Exit code 0, no remedy, the same in the file."""
    told = doctor("--url", any_real_server.target.url, "--home", tmp_path, "--json", tmp_path / "found.json")
    assert told.exit_code == 0, told.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["exit_code"] == 0
    said = [finding for findings in found["found"].values() for finding in findings]
    assert {one["question"] for one in said if one["remedy"]} <= {"allocator"}  # as it was built
    assert ("→" in told.output) == any(one["remedy"] for one in said)
    questions = {finding["question"] for finding in said}
    assert questions >= {
        "version", "append-only file", "eviction", "memory", "allocator", "replication", "rights", "user", "clock",
        "scripts", "latency", "connections", "open files", "disk", "batches",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("setting", "value", "question"),
    [
        ("appendonly", "no", "append-only file"),
        ("appendfsync", "no", "append-only file"),
        ("timeout", "60", "connections"),
    ],
)
def test_what_makes_it_less_safe_is_a_warning(
    valkey: RealServer, tuned: Callable[..., None], tmp_path: Path, setting: str, value: str, question: str
) -> None:
    """Exit code 1, and what to do."""
    tuned(**{setting: value})
    told = doctor("--url", valkey.target.url, "--home", tmp_path, "--json", tmp_path / "found.json")
    assert told.exit_code == 1, told.output
    said = json.loads((tmp_path / "found.json").read_text())["found"][valkey.target.redacted]
    assert [one["question"] for one in said if one["level"] == "warning"] == [question]
    assert all(one["remedy"] for one in said if one["level"] == "warning")


def test_a_server_that_may_drop_keys_cannot_be_used(
    valkey: RealServer, tuned: Callable[..., None], tmp_path: Path
) -> None:
    """Exit code 4, told once, and still everything else is looked at: the rights, too."""
    tuned(maxmemory_policy="allkeys-lru")
    told = doctor("--url", valkey.target.url, "--home", tmp_path)
    assert told.exit_code == 4
    assert told.output.count("allkeys-lru") == 1
    assert "  rights             all that the roles need, and to prune" in told.output
    assert "✗ eviction" in told.output
    assert "CONFIG SET maxmemory-policy noeviction" in told.output
    assert "latency" in told.output


@pytest.mark.parametrize(
    ("allocator", "level", "hinted"),
    [
        ("jemalloc-5.3.0", Level.OK, False),
        ("jemalloc, preloaded", Level.OK, False),
        ("libc", Level.OK, True),
        (None, Level.UNKNOWN, False),
    ],
    ids=["built-in", "preloaded", "libc", "not-known"],
)
async def test_another_allocator_is_a_hint(
    healthy: RealServer, allocator: str | None, level: Level, hinted: bool
) -> None:
    """It costs time and nothing else: whoever has a gate on the exit code need not do anything."""
    vitals = await take_vitals(healthy.target)
    [said] = of(judge_server(replace(vitals, allocator=allocator)), "allocator")
    assert said.level is level
    assert ("LD_PRELOAD" in said.remedy) == hinted
    assert exit_code([said]) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
async def test_a_preloaded_allocator_is_seen_of_a_server_on_this_machine(
    healthy: RealServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INFO goes on telling what the server was built with, and the hint would be for ever."""
    real = "workers.checkup.vitals.parse_info"

    def said(text: bytes) -> dict[str, str]:  # this process plays the server's
        return {**parse_info(text), "mem_allocator": "libc", "process_id": str(os.getpid())}

    monkeypatch.setattr(real, said)
    assert (await take_vitals(healthy.target)).allocator == "libc"
    library = tmp_path / "libjemalloc.so.2"
    library.write_bytes(b"no library")
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert (await take_vitals(healthy.target)).allocator == "jemalloc, preloaded"


async def test_the_room_is_told_by_what_a_run_holds(valkey: RealServer, server: object) -> None:
    """Neither twice as many runs as there will be, nor half: the figure goes with the code."""
    runs = 50
    batch = await Batch.open(valkey.target.address(), runs=runs)
    before = await _held(batch)
    await batch.admit()
    for _ in range(runs):
        await batch.scored()
    assert 0.7 < (await _held(batch) - before) / runs / BYTES_PER_RUN < 1.15
    await batch.aclose()
    vitals = await take_vitals(valkey.target)
    ample = {"used_memory": "0", "maxmemory": str(1_000_000 * (BYTES_PER_RUN + BYTES_PER_CALL))}
    [said] = of(judge_server(replace(vitals, info={**vitals.info, **ample})), "memory")
    assert said.answer.endswith("room for 2,000,000 runs that call nothing, 1,000,000 with a call each")


async def _held(batch: Batch) -> int:
    """Bytes of all that the batch has on its server."""
    found = await batch.wire.call("KEYS", f"evb:*:b:{batch.name}:*")
    return sum([int(await batch.wire.call("MEMORY", "USAGE", key, "SAMPLES", 0)) for key in found])


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """Exit code 4, no table."""
    told = doctor("--url", f"unix://{tmp_path}/none.sock", "--home", tmp_path)
    assert told.exit_code == 4
    assert "there is no such socket" in told.output
    assert len(told.output.splitlines()) == 1


def test_rules_are_printed_and_not_written(tmp_path: Path) -> None:
    """A file that was asked for and is not there would be missed later."""
    told = doctor("--acl", "--json", tmp_path / "rules.json")
    assert told.exit_code == 2
    assert "--json is for what is found" in told.output


def test_a_user_with_too_few_rights_is_told_which(valkey: RealServer, tmp_path: Path) -> None:
    """A reader may look, and is no worker."""
    name = user_name(AclRole.READER, Plane.LIVE)
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", *rule(AclRole.READER, Plane.LIVE, "word").split())
        try:
            url = replace(valkey.target, username=name, password="word").url
            told = doctor("--url", url, "--home", tmp_path)
        finally:
            client.execute_command("ACL", "DELUSER", name)
    assert told.exit_code == 4, told.output
    assert "✗ rights" in told.output
    assert "evalbus doctor --acl" in told.output
    assert "word@" not in told.output


def test_a_batch_that_nobody_works_on_is_named(valkey: RealServer, server: object, tmp_path: Path) -> None:
    """An open batch without a consumer; one with a consumer that was just heard is nobody's worry."""
    batch = BatchId("forgotten")
    keys = BatchKeys(Plane.LIVE, batch)
    with valkey.client() as client:
        client.hset(registry(Plane.LIVE), batch, "open")
        client.xgroup_create(keys.stream("runs"), "worker", mkstream=True)
        told = doctor("--url", valkey.target.url, "--home", tmp_path)
        assert told.exit_code == 1, told.output
        assert "1 open and nobody works on them: forgotten" in told.output
        client.xgroup_createconsumer(keys.stream("runs"), "worker", "somebody")
        told = doctor("--url", valkey.target.url, "--home", tmp_path)
        assert told.exit_code == 0, told.output
        assert "1 heard within a minute" in told.output


def test_nothing_is_written(valkey: RealServer, server: object, tmp_path: Path) -> None:
    """A look may be taken at a server in use."""
    with valkey.client() as client:
        before = client.info("stats")["total_writes_processed"], client.dbsize()
        changes = client.info("persistence")["rdb_changes_since_last_save"]
        doctor("--url", valkey.target.url, "--home", tmp_path)
        assert client.dbsize() == before[1]
        assert client.info("persistence")["rdb_changes_since_last_save"] == changes


async def test_replicas_are_told_and_missed(valkey: RealServer, tuned: Callable[..., None]) -> None:
    """Fewer than it wants to write is a problem."""
    vitals = await take_vitals(valkey.target)
    assert of(judge_server(vitals), "replication")[0].level is Level.OK
    tuned(min_replicas_to_write=1)
    assert of(judge_server(await take_vitals(valkey.target)), "replication")[0].level is Level.PROBLEM


@pytest.fixture(scope="module")
def healthy() -> Iterator[RealServer]:
    """A server whose vitals are changed on paper."""
    with running() as server:
        yield server


@pytest.mark.parametrize(
    ("question", "level", "info"),
    [
        ("memory", Level.WARNING, {"maxmemory": "1000000", "used_memory": "900000"}),
        ("memory", Level.WARNING, {"used_memory": str(2**30), "used_memory_rss": str(2**31), "maxmemory": str(2**34)}),
        ("replication", Level.WARNING, {"connected_slaves": "1", "slave0": "ip=a,port=1,state=wait_bgsave,lag=0"}),
        ("replication", Level.WARNING, {"connected_slaves": "1", "slave0": "ip=a,port=1,state=online,lag=60"}),
        ("replication", Level.OK, {"connected_slaves": "1", "slave0": "ip=a,port=1,state=online,lag=1"}),
        ("snapshot file", Level.PROBLEM, {"rdb_last_bgsave_status": "err"}),
        ("append-only file", Level.WARNING, {"aof_last_write_status": "err"}),
        ("connections", Level.WARNING, {"connected_clients": "9000", "maxclients": "10000"}),
    ],
    ids=[
        "nearly-full",
        "fragmented",
        "replica-out-of-step",
        "replica-lags",
        "replica-well",
        "snapshot",
        "aof",
        "clients",
    ],
)
async def test_what_info_says_is_judged(
    healthy: RealServer, question: str, level: Level, info: Mapping[str, str]
) -> None:
    """What cannot be brought about in a test is written into what a real server said."""
    vitals = await take_vitals(healthy.target)
    ill = replace(vitals, info={**vitals.info, **info})
    said = of(judge_server(ill), question)
    assert level in {finding.level for finding in said}, said
    assert all(finding.remedy for finding in said if finding.level in (Level.WARNING, Level.PROBLEM))


@pytest.mark.parametrize(
    ("question", "change"),
    [
        ("clock", {"clock_ahead": -60.0}),
        ("latency", {"round_trips": [0.05] * 100}),
        ("scripts", {"broken_scripts": {"run.seal": "ERR no"}}),
    ],
    ids=["clock", "latency", "scripts"],
)
async def test_what_was_measured_is_judged(healthy: RealServer, question: str, change: Mapping[str, object]) -> None:
    """Each has a bound; within it, nothing is said."""
    vitals: Vitals = await take_vitals(healthy.target)
    assert of(judge_server(vitals), question)[0].level is Level.OK
    assert of(judge_server(replace(vitals, **change)), question)[0].level is not Level.OK  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "tls", "warned"),
    [
        ("queue.example", False, True),
        ("192.0.2.7", False, True),
        ("127.0.0.1", False, False),
        ("queue.example", True, False),
    ],
)
async def test_a_password_over_plain_tcp_is_warned_of(healthy: RealServer, host: str, tls: bool, warned: bool) -> None:
    """On loopback nobody listens."""
    vitals = await take_vitals(healthy.target)
    there = replace(vitals, target=replace(vitals.target, path=None, host=host, tls=Tls() if tls else None))
    assert (of(judge_server(there), "transport")[0].level is Level.WARNING) == warned


async def test_the_clock_is_read_right(healthy: RealServer) -> None:
    """The server runs on this machine: the clocks are the same, to what a round trip takes."""
    vitals = await take_vitals(healthy.target)
    assert abs(vitals.clock_ahead) < 1.0


def test_a_home_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write everywhere, so the question is answered for it."""
    assert {finding.level for finding in judge_machine(tmp_path / "new" / "home")} == {Level.OK}
    monkeypatch.setattr("os.access", lambda *_: False)
    assert of(judge_machine(tmp_path), "disk")[0].level is Level.WARNING


def test_the_worst_decides_the_exit_code() -> None:
    """What could not be looked at is no reason to fail."""

    def code(*levels: Level) -> int:
        return exit_code([Finding("q", level, "a") for level in levels])

    assert code() == code(Level.OK, Level.UNKNOWN) == 0
    assert code(Level.OK, Level.WARNING) == 1
    assert code(Level.WARNING, Level.PROBLEM) == 4
    assert [finding.level for finding in judge_left([])] == [Level.OK]
