"""A role that is told to stop does so at once: what it waits for ends, and a server that is gone is given up."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from bus.bell import Bell
from bus.cluster import ServerBus
from bus.errors import ServerUnreachable
from bus.keys import SHARDS, bell
from bus.port import BatchSpec, Group
from bus.redis_bus import RedisBus
from bus.registries import Registries
from bus.target import Target
from bus.topology import Primary, Topology
from bus.types import BatchId, Plane
from bus.wire import Wire
from tests.batches import P1, W1, Batch, FixedDoor, opened
from tests.fleet import Stage, case, eventually
from tests.servers import Kind, running
from tests.waiting import soon, until
from workers.catalogue import Served
from workers.closing import Closable
from workers.consumer import Consumer, Handler, Serving
from workers.planner import Planner
from workers.runtime import SystemRuntime
from workers.suite import Suite

_SOON = 40.0
"""Seconds in which what takes three must be over on any machine; unhurried it takes a minute."""


# --- a wait that ends --------------------------------------------------------------------------------------


async def test_a_read_that_waits_ends_when_the_process_is_told_to_stop(any_server: Target) -> None:
    """Not by closing the connection: what the server hands out at that moment would be lost until its lease ran out."""
    async with opened(any_server.address()) as batch:
        reading = asyncio.ensure_future(batch.bus.read(Group.WORKER, W1, [batch.name], 1, 600_000))
        await _waits(batch)
        batch.bus.hurry()
        assert await soon(reading) == []


async def test_what_came_before_the_stop_is_delivered(server: Target) -> None:
    """The entry was this consumer's before the read was ended, and it is told so."""
    async with opened(server.address(), runs=1) as batch:
        reading = asyncio.ensure_future(batch.bus.read(Group.WORKER, W1, [batch.name], 1, 600_000))
        await _waits(batch)
        await batch.admit()
        batch.bus.hurry()
        [entry] = await soon(reading)
        assert entry.run == "c0#1"


async def _waits(batch: Batch) -> None:
    """Until a read waits at the server, and the bus knows by which name it could be ended."""
    await _blocked(batch.wire, 1)
    reader = batch.bus._reader
    await until(lambda: reader._wire is not None and reader._wire.client_id is not None, "its connection's number")


async def _blocked(wire: Wire, count: int) -> None:
    async def is_blocked() -> bool:
        return f"blocked_clients:{count}".encode() in await wire.call("INFO", "clients")

    await eventually(is_blocked, "a read to wait at the server")


# --- a server that is gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_call_gives_up_a_server_that_is_gone_soon_after_the_stop(
    monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    """It would be sent again for a minute otherwise, on the chance that the server comes back."""
    monkeypatch.setattr("bus.link.HURRIED", 0.3)
    monkeypatch.setattr("bus.link._HURRIED_SILENCE", 0.1)
    with running(Kind.VALKEY9) as server:
        bus = RedisBus(FixedDoor(server.target.address()), SystemRuntime())
        await bus.batches()
        server.process.send_signal(how)
        try:
            call = asyncio.ensure_future(bus.batches())
            if how is signal.SIGKILL:
                await until(lambda: bus.link._failed is not None, "the link to find nobody there")
            started = time.monotonic()
            bus.hurry()
            with pytest.raises(ServerUnreachable):
                await soon(call)
            with pytest.raises(ServerUnreachable):  # nor is there more time for what comes after it
                await soon(bus.batches())
            assert time.monotonic() - started < _SOON
        finally:
            await bus.aclose()
            server.process.send_signal(signal.SIGCONT)


async def test_a_stop_hurries_a_connection_that_is_just_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped server's socket takes connections, and greets nobody: nothing would be sent again, nothing given up."""
    monkeypatch.setattr("bus.link.HURRIED", 0.3)
    with running(Kind.VALKEY9) as server:
        server.process.send_signal(signal.SIGSTOP)
        bus = RedisBus(FixedDoor(server.target.address()), SystemRuntime())
        try:
            call = asyncio.ensure_future(bus.batches())
            await until(lambda: bus.link._opening_limit is not None, "the link to knock")
            bus.hurry()
            with pytest.raises(ServerUnreachable, match="told to stop"):
                await soon(call)
        finally:
            await bus.aclose()
            server.process.send_signal(signal.SIGCONT)


class _OneServer:
    """The topology of a cluster that has one."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def primaries(self, _plane: Plane) -> list[Primary]:
        """It has all shards."""
        return [Primary(self._target, tuple(range(SHARDS)))]


async def test_who_stands_in_line_for_a_clusters_registries_is_hurried_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's runs and its tools ask one behind the other: each had its own five seconds of silence, and three."""
    monkeypatch.setattr("bus.registries.HURRIED", 0.3)
    with running(Kind.VALKEY9) as server:
        topology = cast("Topology", _OneServer(server.target))
        registries = Registries(topology, SystemRuntime(), Plane.LIVE, patience=60.0)
        assert await registries.find(BatchId("none")) is None
        server.process.send_signal(signal.SIGSTOP)
        try:
            asked = [asyncio.ensure_future(registries.find(BatchId("none"))) for _ in range(4)]
            await until(lambda: len(registries._limits) == len(asked), "all to stand in line")
            started = time.monotonic()
            registries.hurry()
            for one in asked:
                with pytest.raises(ServerUnreachable, match="told to stop"):
                    await soon(one)
            with pytest.raises(ServerUnreachable):
                await soon(registries.read())
            assert time.monotonic() - started < _SOON
            monkeypatch.setattr("bus.registries._AT_LEAST", _SOON)
            server.process.send_signal(signal.SIGCONT)
            assert not any((await soon(registries.read())).values()), "one that answers is heard to the last"
        finally:
            registries.close()
            server.process.send_signal(signal.SIGCONT)


async def test_a_server_that_answers_is_waited_for_also_in_a_hurry(server: Target) -> None:
    """What is held is handed back, however many calls that takes."""
    async with opened(server.address()) as batch:
        await batch.admit()
        held = await batch.claimed()
        batch.bus.hurry()
        assert (await batch.bus.give_back(held.ref)).applied


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
async def test_roles_end_soon_when_their_server_has_stopped(tmp_path: Path) -> None:
    """They hold leases that they want to hand back, and a place they read from: neither keeps them for a minute."""
    with running(Kind.VALKEY9) as server, Stage.opened(tmp_path) as stage:
        url = server.target.url
        suite = stage.suite([case("a", solver="sleeps"), case("b", solver="sleeps")])
        command = stage.start("run", suite, "--workers", 1, "--scorers", 1, "--batch", "b", "--url", url)
        async with stage.watch("b", url) as batch:
            await eventually(lambda: batch.held(count=1), "a run to be held")
        roles = await stage.crew(3)
        server.process.send_signal(signal.SIGSTOP)
        command.process.kill()  # so that none is started again; they are told by the kernel, as by anybody
        command.process.wait()
        started = time.monotonic()
        for role in roles:
            role.signal(signal.SIGTERM)
        await until(lambda: not any(role.alive for role in roles), "the roles to end")
        assert time.monotonic() - started < _SOON
        server.process.send_signal(signal.SIGCONT)


# --- an idle role ------------------------------------------------------------------------------------------


class _Serving:
    """Which batches a test's consumer serves: all that the registry names. It only counts who looks."""

    def __init__(self, bus: ServerBus) -> None:
        self._bus = bus
        self.prepare: Callable[[Suite, BatchSpec], None] | None = None
        self.looks = 0
        self.seen: list[BatchId] = []

    async def open_batches(self) -> list[Served]:
        self.looks += 1
        self.seen = await self._bus.batches()
        return []

    async def ended(self) -> bool:
        return bool(self.seen)


@pytest.mark.parametrize("role", ["planner", "worker"])
async def test_who_serves_nothing_is_woken_by_a_declaration(any_server: Target, role: str) -> None:
    """By the bell alone: the registry is not looked at again before it rings."""
    bus = RedisBus(FixedDoor(any_server.address()), SystemRuntime())
    serving = _Serving(bus)

    async def opened_(_seconds: float) -> None:
        await bus.opened(600.0)

    made: Planner | Consumer
    if role == "planner":
        made = Planner(bus, SystemRuntime(), P1, serving, opened_)  # type: ignore[arg-type]
    else:
        never: Handler = None  # type: ignore[assignment]
        made = _consumer(bus, serving, never, opened_)
    serves = asyncio.ensure_future(made.run())
    batch = await Batch.open(any_server.address())
    await soon(serves)
    assert serving.seen == [batch.name]
    await batch.aclose()
    await bus.aclose()


def _consumer(bus: RedisBus, serving: Serving, handler: Handler, opened_: object) -> Consumer:
    class _Ready:
        def prepare(self, *_: object) -> None: ...

        def forget_all_but(self, *_: object) -> Sequence[Closable]:
            return ()

    return Consumer(bus, SystemRuntime(), Group.WORKER, W1, serving, handler or _Ready(), opened=opened_)  # type: ignore[arg-type]


async def test_a_bell_that_rings_between_a_look_and_the_wait_is_heard(server: Target) -> None:
    """Who looked, found nothing, and only then began to listen would sleep beside an open batch."""
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    with_batch = await Batch.open(server.address())
    await soon(bus.opened(600.0))
    waiting = asyncio.ensure_future(bus.opened(600.0))
    await _blocked(with_batch.wire, 1)
    assert not waiting.done(), "each ring is heard once"
    waiting.cancel()
    await bus.aclose()
    await with_batch.aclose()


async def test_a_bell_that_nobody_rings_or_may_hear_is_only_a_pause(server: Target) -> None:
    """A wake-up may be lost; the look comes all the same. So does it where the bell cannot be read."""
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    await soon(bus.opened(0.01))
    await bus.link.command("DEL", bell(Plane.LIVE))
    await bus.link.command("SET", bell(Plane.LIVE), "no stream")
    try:
        for _ in range(2):
            await soon(bus.opened(0.01))
        assert bus._bell._deaf
        batch = await Batch.open(server.address())  # nor is it an error that it cannot be rung
        await batch.aclose()
    finally:
        await bus.link.command("DEL", bell(Plane.LIVE))
        await bus.aclose()
    assert isinstance(bus._bell, Bell)
