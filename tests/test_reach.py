"""An endpoint that only one machine cannot reach: its runs are others'. One that nobody reaches ends them as before."""

from __future__ import annotations

import errno
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from pydantic import SecretStr

from bus.endpoint_limits import EndpointLimits
from bus.errors import MachineError, ServerUnreachable
from bus.redis_bus import RedisBus
from bus.target import Target
from tests.model_stage import ASKS_ONCE, BATCH, ModelStage, OnServer, cases, suite_of
from tests.waiting import until
from workers import redaction
from workers.consumer import Consumer
from workers.endpoints import Client, EndpointError, EndpointSpec, OverloadedError, UnusableError, make_endpoint
from workers.endpoints.failures import Failures
from workers.lab import Lab
from workers.modelling import calls
from workers.processes import reach
from workers.processes.reach import Reach, Streak
from workers.runtime import SystemRuntime
from workers.worker import Worker

RUNS = 30
ASKS_ON = """\
import asyncio
from pathlib import Path

async def solve(case, run):
    told = await run.model.complete(f"LAB-ANSWER: {case.input}")
    while not Path(__file__).with_name("enough.log").exists():
        await asyncio.sleep(0.01)
        await run.model.complete("more")
    return told.text
"""
"""Whoever reaches the endpoint hears answers until the test has seen what it waits for."""

NO_WAY = UnusableError("cannot be reached", unreachable=True)
NO_NETWORK = UnusableError("cannot be reached", unreachable=True, local=True)


class _Fleet:
    """What others say, as the test has it."""

    def __init__(self) -> None:
        self.said = 0
        self.is_away = False

    async def answered(self) -> None:
        if self.is_away:
            raise ServerUnreachable("no server")
        self.said += 1

    async def answers(self) -> int:
        return self.said


async def _nothing() -> None:
    """The way is free."""


async def faults(fleet: _Fleet, here: Reach, error: EndpointError, others: int = 0, own: int = 0) -> list[int]:
    """After which of eight failures the machine is found to be at fault, when answers come meanwhile."""
    streak, found = Streak(here, SystemRuntime()), []
    for failure in range(1, 9):
        if await streak.fault(error) is not None:
            found.append(failure)
        fleet.said += others
        here.heard += own
    return found


async def test_who_alone_finds_no_way_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others hear answers while this one hears none; or nobody but this machine was asked at all."""
    fleet = _Fleet()
    here = Reach(fleet, _nothing)
    assert await faults(fleet, here, NO_WAY, others=1) == [4, 5, 6, 7, 8]
    assert await faults(fleet, here, NO_WAY) == [], "nobody hears any: it is the endpoint"
    assert await faults(fleet, here, NO_WAY, others=1, own=1) == [], "another run here was answered"
    assert await faults(fleet, here, NO_NETWORK) == [4, 5, 6, 7, 8], "no witness is needed"
    assert await faults(fleet, here, OverloadedError("503"), others=1) == [], "it was reached"
    monkeypatch.setattr(reach, "_TELL_EVERY", 3600.0)
    before = fleet.said
    for _ in range(3):
        await here.answered(SystemRuntime())
    assert (here.heard, fleet.said) == (11, before + 1), "once in a while is enough"


async def test_a_witness_that_cannot_be_heard_costs_no_answer() -> None:
    """The answer is bound by then."""
    fleet = _Fleet()
    fleet.is_away = True
    await Reach(fleet, _nothing).answered(SystemRuntime())


async def test_all_workers_of_an_endpoint_hear_each_other(server: Target) -> None:
    """The number stands beside its buckets, and disturbs none of them."""
    stage = OnServer(server)
    one, two = stage.bus(), stage.bus()
    try:
        limits = [EndpointLimits(bus.link, "evb:{live.0}:endpoint:x") for bus in (one, two)]
        assert await limits[0].answers() == 0
        await limits[0].answered()
        assert await limits[1].take(10) == 0.0
        await limits[1].answered()
        assert await limits[0].answers() == 2
    finally:
        await one.aclose()
        await two.aclose()


@pytest.mark.parametrize(
    ("cause", "local"),
    [
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), True),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), False),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), True),
        (OSError(errno.EMFILE, "Too many open files"), True),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), False),
    ],
    ids=["no resolver", "no such name", "no network", "no file left", "refused"],
)
def test_what_only_this_machine_was_asked_is_told_apart(cause: OSError, local: bool) -> None:
    """A name that a resolver does not know may be a typing error; a resolver that does not answer is none."""
    failures = Failures(EndpointSpec("chat", "http://e", "m", SecretStr("k")), "http://e")
    key = SimpleNamespace(host="e", port=80, ssl=False, is_ssl=False)
    error = failures.of_transport(aiohttp.ClientConnectorError(key, cause), 0)  # type: ignore[arg-type]
    assert isinstance(error, UnusableError)
    assert (error.unreachable, error.local) == (True, local)


class _NoWay(Client):
    """A machine with a proxy that is not there."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        """Finds nobody."""
        key = SimpleNamespace(host="e", port=80, ssl=False, is_ssl=False)
        refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        raise aiohttp.ClientConnectorError(key, refused)  # type: ignore[arg-type]

    async def get(self, url: str) -> tuple[int, bytes]:
        """Likewise."""
        return (await self.post(url, {}, b"")).status, b""


@pytest.fixture
async def stage(server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ModelStage]:
    """Nothing declared yet; failures follow each other fast."""
    monkeypatch.setattr(calls, "_FIRST_RETRY", 0.01)
    monkeypatch.setattr(reach, "_TELL_EVERY", 0.0)
    one = ModelStage(OnServer(server), tmp_path)
    yield one
    await one.aclose()
    redaction.forget()


async def lost(stage: ModelStage) -> Worker:
    """A worker that finds no way to the endpoint, started."""
    stage.worker(name="lost")
    worker = stage.handlers[-1]
    assert isinstance(worker, Worker)
    worker.prepare(stage.suite, (await _info(stage)).spec)
    [plane] = worker._planes.values()
    plane._client = _NoWay()
    plane._stack.push_async_callback(plane._client.aclose)
    plane._endpoint = make_endpoint(plane._spec, plane._client)
    return worker


async def _info(stage: ModelStage):  # type: ignore[no-untyped-def]  # noqa: ANN202 - what a batch declared
    info = await stage.bus.info(BATCH)
    assert info is not None
    return info


async def test_a_machine_that_alone_does_not_reach_the_endpoint_loses_no_run(
    stage: ModelStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs were holes, `endpoint_error`, and it had the next ones before all others; the fleet's retries, too."""
    monkeypatch.setattr(calls, "_ATTEMPTS", 1_000)  # it may be the first to ask by any time
    with Lab(seed=1) as lab:
        toml = suite_of(lab, 'concurrency = 4\nignore = ["*.log"]\n', "retry_budget = 10000")
        await stage.declare(toml, agent_DOT_py=ASKS_ON, cases_DOT_jsonl=cases([f"c{n}" for n in range(RUNS)]))
        stage.planner()
        worker = await lost(stage)
        consumer = cast("Consumer", stage.processes[-1].role)
        stage.worker(name="sound")
        stage.scorer()
        await until(lambda: consumer._breaker.is_on, "it rests")
        (stage.root / "suite" / "enough.log").touch()
        counters = await stage.closed()
        assert (counters.holes, counters.reserved) == (0, 0)
        bus = cast("RedisBus", stage.bus)
        rows = await bus.rows(BATCH, await bus.run_ids(BATCH))
        assert {row.attempts for row in rows} == {1}
        assert any(row.gen > 1 for row in rows), "it had some, and handed them back"
        [plane] = worker._planes.values()
        with pytest.raises(MachineError, match="cannot be reached"):
            await plane._try_it()


async def test_an_endpoint_that_nobody_reaches_ends_runs_as_before(stage: ModelStage) -> None:
    """There is nobody who says otherwise, and nothing to wait for."""
    with Lab(seed=1) as lab:
        await stage.declare(suite_of(lab), agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=cases(["a"]))
        stage.planner()
        await lost(stage)
        stage.scorer()
        counters = await stage.closed()
        assert counters.hole_reasons == {"endpoint_error": 1}


async def test_a_machine_without_a_network_asks_nobody_for_a_retry(
    stage: ModelStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hands its run back, and goes on when there is a network again."""
    ways = {"lost": True}

    async def post(self: _NoWay, url: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        if not ways["lost"]:
            return await Client.post(self, url, headers, body)
        key = SimpleNamespace(host="e", port=80, ssl=False, is_ssl=False)
        refused = OSError(errno.ENETUNREACH, "Network is unreachable")
        raise aiohttp.ClientConnectorError(key, refused)  # type: ignore[arg-type]

    async def get(self: _NoWay, url: str) -> tuple[int, bytes]:
        if ways["lost"]:
            await post(self, url, {}, b"")
        return 200, b""

    monkeypatch.setattr(_NoWay, "post", post)
    monkeypatch.setattr(_NoWay, "get", get)
    with Lab(seed=1) as lab:
        toml = suite_of(lab, model="retry_budget = 0", lease="1s")
        await stage.declare(toml, agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=cases(["a"]))
        stage.planner()
        await lost(stage)
        stage.scorer()
        consumer = stage.processes[-2].role
        await until(lambda: consumer._breaker.is_on, "it rests")  # type: ignore[union-attr]
        ways["lost"] = False
        counters = await stage.closed()
        assert (counters.holes, counters.bins["pass"]) == (0, 1)


async def test_a_fleet_without_a_resolver_ends_its_batch(stage: ModelStage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that none of them can ask for: each rested, found the name still missing, and rested again, for ever."""
    monkeypatch.setattr(reach, "_HOPELESS", 1.0)

    async def post(self: _NoWay, url: str, headers: Mapping[str, str], body: bytes) -> aiohttp.ClientResponse:
        key = SimpleNamespace(host="e", port=80, ssl=False, is_ssl=False)
        unknown = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        raise aiohttp.ClientConnectorError(key, unknown)  # type: ignore[arg-type]

    monkeypatch.setattr(_NoWay, "post", post)
    with Lab(seed=1) as lab:
        await stage.declare(suite_of(lab, lease="300ms"), agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=cases(["a", "b"]))
        stage.planner()
        await lost(stage)
        stage.scorer()
        consumer = stage.processes[-2].role
        await until(lambda: consumer._breaker.is_on, "it rests")  # type: ignore[union-attr]
        counters = await stage.closed()
        assert counters.hole_reasons == {"endpoint_error": 2}


async def test_who_hears_of_an_answer_has_hope_again() -> None:
    """Its own, or anybody's."""
    fleet = _Fleet()
    here = Reach(fleet, _nothing)
    assert not await here.is_hopeless(1000.0)
    assert (await here.is_hopeless(1299.0), await here.is_hopeless(1300.0)) == (False, True)
    fleet.said += 1
    assert (await here.is_hopeless(1301.0), await here.is_hopeless(1601.0)) == (False, True)
    here.heard += 1
    assert not await here.is_hopeless(1602.0)
