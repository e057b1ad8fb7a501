"""Faults strike while a batch is under way, one after the other, and some at a time; in the end all is well again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeAlias

import structlog

from bus.errors import EvalbusError
from workers.chaos import network, processes, servers
from workers.chaos.faults import Fault
from workers.chaos.plan import Strike
from workers.chaos.scene import Scene

__all__ = ["strike_until"]

log = structlog.get_logger("evalbus.chaos")

Blow: TypeAlias = Callable[[Scene, Strike], Awaitable[None]]

_SHORTEST_PAUSE = 0.8  # seconds, mean; a process takes as long to start
_PAUSES_A_LEASE = 4  # so that no lease passes without a few faults, nor all of them with nothing but faults

_BLOWS: Mapping[Fault, Blow] = {
    Fault.KILL: processes.kill,
    Fault.STOP: processes.stop,
    Fault.TERM: processes.term,
    Fault.KILL_PLANNER: processes.kill_planner,
    Fault.KILL_AT_POINT: processes.kill_at_point,
    Fault.LATE_ACK: processes.late_ack,
    Fault.LOSE_ANSWER: processes.lose_answer,
    Fault.LATE_DUPLICATE: processes.late_duplicate,
    Fault.CLOCK: processes.clock,
    Fault.DISK_FULL: processes.disk_full,
    Fault.SERVER_KILL: servers.server_kill,
    Fault.SERVER_KILL_ALWAYS: servers.server_kill_always,
    Fault.SERVER_LOSE_TAIL: servers.server_lose_tail,
    Fault.SERVER_CLOCK: servers.server_clock,
    Fault.SCRIPT_FLUSH: servers.script_flush,
    Fault.MEMORY_FULL: servers.memory_full,
    Fault.FAILOVER: servers.failover,
    Fault.CLUSTER_FAILOVER: servers.failover,
    Fault.CUT: network.cut,
    Fault.HALF_OPEN: network.half_open,
    Fault.DELAY: network.delay,
    Fault.DUPLICATE_REQUEST: network.duplicate_request,
    Fault.REDELIVER: servers.redeliver,
    Fault.COPY_ENTRY: servers.copy_entry,
    Fault.ENDPOINT: network.endpoint,
}


async def strike_until(over: asyncio.Event, scene: Scene, plan: Iterator[Strike], seconds: float) -> None:
    """Let faults strike until `over`, or for so many seconds; returns when each is undone."""
    mean = max(_SHORTEST_PAUSE, scene.lease / _PAUSES_A_LEASE)
    under_way: set[asyncio.Task[None]] = set()
    try:
        async with asyncio.timeout(seconds):
            while not over.is_set():
                strike = next(plan)
                try:
                    await asyncio.wait_for(over.wait(), strike.pause * mean)
                except TimeoutError:
                    blow = asyncio.create_task(_strike(scene, strike))
                    under_way.add(blow)
                    blow.add_done_callback(under_way.discard)
    except TimeoutError:
        pass
    finally:
        for blow in under_way:
            blow.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def _strike(scene: Scene, strike: Strike) -> None:
    try:
        await _BLOWS[strike.fault](scene, strike)
    except EvalbusError as error:  # another fault was quicker
        log.info("fault.missed", fault=str(strike), why=str(error))
