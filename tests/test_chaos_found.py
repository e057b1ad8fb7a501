"""What chaos has found, each as small as it can be shown."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bus.errors import ArtifactMissing, MachineError, ServerUnreachable
from bus.link import Link
from bus.port import BatchSpec, Chunk, Group, Ref
from bus.target import Target
from bus.types import Digest, Durability, Gen, LeaseId
from tests.batches import W1, W2, Batch, FixedDoor, opened
from tests.model_calls import LIMITS, at, figures, opened_call, succeeded
from tests.peer import peer
from tests.suites import MINIMAL, make_suite
from tests.waiting import soon, until
from workers.catalogue import Served
from workers.closing import Closable
from workers.consumer import Consumer, Handler, Serving
from workers.lease import Lease
from workers.processes import logs
from workers.run import Run
from workers.runtime import SystemRuntime
from workers.solving import SolverError, make_solver
from workers.suite import Suite

_LOADING = b"role:master\r\nloading:1\r\naof_enabled:0\r\n"


async def test_a_server_that_is_loading_its_data_is_waited_for() -> None:
    """Killed and started again, Valkey says until it has loaded that it keeps no append-only file.

    Whoever comes just then would find it unfit for its durability, which no retry mends, and end for good.
    """
    async with peer(lambda _: b"$%d\r\n%s\r\n" % (len(_LOADING), _LOADING)) as one:
        link = Link(FixedDoor(one.address), SystemRuntime(), patience=0.01, durability=Durability.STANDARD)
        with pytest.raises(ServerUnreachable, match="loading"):
            await link.command("PING")
        link.close()


async def test_a_call_of_which_nobody_was_asked_yet_waits_for_the_next_sweep(server: Target) -> None:
    """The endpoint was asked; then the sweeper's connection went silent, and a call's time ran out meanwhile.

    Swept with figures from before, it would be charged with all that it was admitted for.
    """
    async with opened(server.address(), limits=LIMITS, reclaim_ms=1_000) as batch:
        await batch.admit()
        await at(batch, 5_000)
        held = await batch.claimed()
        call, _ = await opened_call(batch, held)
        await batch.bus.flush(held.ref, call, [Chunk(1, 10)])
        await succeeded(batch, held)
        await at(batch, 6_000)
        before = await figures(batch)
        assert (await batch.bus.sweep(batch.name, 50, "model", {}, asked=[])).answer == {"freed": 0}
        assert await figures(batch) == before
        swept = await batch.bus.sweep(batch.name, 50, "model", {call.desk_lease: 12}, asked=[call.desk_lease])
        assert swept.answer == {"freed": 1}
        assert await figures(batch) == {"spent": 12, "durable": 10}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
async def test_a_disk_that_takes_no_more_is_not_the_candidates_failure(tmp_path: Path, number: int) -> None:
    """Its run would be a hole, and the machine would go on to spoil the next one; on another one it may pass."""
    code = f"def solve(case, run):\n    raise OSError({number}, 'no')\n"
    suite = make_suite(tmp_path, MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"'), agent_DOT_py=code)
    with pytest.raises(MachineError, match=f"^{os.strerror(number)}$"):
        await make_solver(suite).solve(suite.cases[0], _nobody())


async def test_a_file_that_is_not_there_is_the_candidates_failure(tmp_path: Path) -> None:
    """On every machine."""
    code = "def solve(case, run):\n    open('nowhere/at/all')\n"
    suite = make_suite(tmp_path, MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"'), agent_DOT_py=code)
    with pytest.raises(SolverError, match="nowhere"):
        await make_solver(suite).solve(suite.cases[0], _nobody())


def test_a_log_that_cannot_be_written_costs_its_lines_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat that logs that a lease is gone must not end by it: its process would live on without a heartbeat."""

    class Full:
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "no space left on device")

        flush = isatty = lambda _: False

    monkeypatch.setattr(sys, "stderr", Full())
    stream = logs._Lossy(sys.stderr)
    assert stream.write(json.dumps({"event": "lease.fenced"})) > 0
    stream.flush()


def _nobody() -> Run:
    """A solver that fails before it looks at its run needs none."""
    return None  # type: ignore[return-value]


class _Unserved(Serving):
    """One batch, whose entries anybody may be given; there is no suite behind it."""

    def __init__(self, batch: Batch) -> None:
        self.prepare = None
        suite = SimpleNamespace(concurrency=1, digest="d")
        self._one = cast(Served, SimpleNamespace(batch=batch.name, lease=1.0, suite=suite, runs=batch.runs))

    async def open_batches(self) -> list[Served]:
        return [self._one]

    async def ended(self) -> bool:
        return False


class _Handles(Handler):
    """What a handler must have, for those below."""

    def prepare(self, suite: Suite, spec: BatchSpec) -> None:
        pass

    def forget_all_but(self, suites: Collection[Digest]) -> Sequence[Closable]:
        return ()

    def time_of(self, served: Served) -> float:
        return 1.0

    async def give_back(self, lease: Lease, fault: MachineError | None = None) -> bool:
        return True


class _FindsNoArtifact(_Handles):
    """Claims a run and finds that the bytes that it needs are nowhere."""

    def __init__(self, batch: Batch, *, superseded: bool) -> None:
        self.batch, self.superseded, self.found = batch, superseded, asyncio.Event()

    async def handle(self, lease: Lease, served: Served, lease_id: LeaseId) -> float | None:
        decision = await self.batch.bus.claim(lease.entry, lease_id, W1)
        lease.ref = Ref(lease.entry.batch, lease.entry.run, lease_id, Gen(decision.answer["gen"]))
        if self.superseded:
            await self.batch.claimed(W2, await self.batch.taken(lease.entry, W2))
        self.found.set()
        raise ArtifactMissing("no artifact of that name")


@pytest.mark.parametrize("superseded", [True, False])
async def test_who_misses_bytes_under_a_lease_that_is_void_goes_on(server: Target, superseded: bool) -> None:
    """A server lost its last moments: the bytes, what named them, and the lease. Every scorer that held one ended.

    Under a lease that holds, the bytes should be there: that is told, and the role ends.
    """
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        handler = _FindsNoArtifact(batch, superseded=superseded)
        consumer = Consumer(batch.bus, SystemRuntime(), Group.WORKER, W1, _Unserved(batch), handler)
        running = asyncio.create_task(consumer.run())
        await soon(handler.found.wait())
        if not superseded:
            with pytest.raises(ArtifactMissing):
                await soon(running)
            return
        await until(lambda: not consumer._holding, "the lease is let go")
        assert not running.done()
        consumer.stop()
        await soon(running)


class _NoTimePasses(SystemRuntime):
    def now(self) -> float:
        return 1_000.0


class _Claims(_Handles):
    """Holds each run that it is given for no time at all."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.claimed = batch, list[str]()

    async def handle(self, lease: Lease, served: Served, lease_id: LeaseId) -> float | None:
        assert (await self.batch.bus.claim(lease.entry, lease_id, W2)).applied
        self.claimed.append(lease.entry.run)
        return None


async def test_what_a_look_had_no_room_for_is_looked_for_as_soon_as_there_is(server: Target) -> None:
    """A machine vanished with three runs, and one slot is free elsewhere: they waited a fifth of a lease time each.

    Twenty workers killed, one slot left: 1.6 lease times to the last one's next lease.
    """
    async with opened(server.address(), runs=3) as batch:
        await batch.admit()
        gone = await batch.bus.read(Group.WORKER, W1, [batch.name], 3, 1)
        stream = batch.keys.stream(Group.WORKER.stream)
        silent: list[str | int] = ["IDLE", 60_000, "JUSTID"]
        await batch.wire.call("XCLAIM", stream, Group.WORKER.on_server, W1, 0, *[one.id for one in gone], *silent)
        handler = _Claims(batch)
        consumer = Consumer(batch.bus, _NoTimePasses(), Group.WORKER, W2, _Unserved(batch), handler, slots=1)
        running = asyncio.create_task(consumer.run())
        await until(lambda: len(handler.claimed) == 3, "all three are claimed")
        consumer.stop()
        await soon(running)
        assert sorted(handler.claimed) == sorted(batch.runs)
