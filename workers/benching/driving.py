"""A fleet on a server of its own, and what a batch took it.

The server starts empty, with its append-only file synced every second. Workers and scorer are up before anything is
measured, have done a small batch already, and wait at the new batch's streams; then the planner is started, and the
clock is the server's own: from the first admission to the close, by the times of the history's entries. So a figure is
about runs, and not about how long Python takes to start or an idle role to look for new batches.

A batch whose history does not say of every run that it was admitted, leased, sealed and scored, each once, is no
measurement: `ViolationError`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bus.connection import Endpoint
from bus.errors import ViolationError
from bus.history import read_history
from bus.port import BatchStatus, Group
from bus.redis_bus import RedisBus
from bus.types import BatchId
from bus.wire import Wire
from workers.batch_spec import spec_of
from workers.benching.counting import Sent
from workers.benching.kinds import Kind, expected
from workers.benching.measuring import ServerCounts, cpu_seconds, resident_memory, server_counts
from workers.processes.fleet import Fleet
from workers.processes.role_options import Role, RoleOptions
from workers.runtime import SystemRuntime
from workers.suite import Suite

__all__ = ["Cost", "Look", "Stage", "private_server", "staged"]

_STARTING = 60.0  # seconds for all processes to be up, and for a batch to be known to them
_LOOK_EVERY = 0.02
_PLAIN: Mapping[str, str] = {"OPENAI_API_KEY": ""}
"""A key of the user's would be looked for in everything that is written, and sent to an endpoint that needs none."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What some runs took."""

    runs: int
    seconds: float
    server: ServerCounts
    cpu_s: Mapping[str, float]
    """Processor seconds by role (`worker`: all of them together), and of `server`; empty where nothing tells them."""
    memory: Mapping[str, int]
    """Resident bytes of the largest process of each role, at the end."""
    sent: int = 0
    """Commands that clients sent, where that was watched."""

    @property
    def runs_per_s(self) -> float:
        """By the server's clock."""
        return self.runs / self.seconds

    @property
    def commands_per_run(self) -> float:
        """Commands of the server, those inside scripts included."""
        return self.server.commands / self.runs

    @property
    def bytes_per_run(self) -> float:
        """Of the server's memory, history included."""
        return self.server.memory / self.runs

    @property
    def cpu_ms_per_run(self) -> dict[str, float]:
        """By role, and in `all`."""
        each = {name: 1000 * seconds / self.runs for name, seconds in self.cpu_s.items()}
        return {**each, "all": sum(each.values())}


@dataclass(frozen=True, slots=True)
class Look:
    """One reading of everything."""

    server: ServerCounts
    cpu_s: Mapping[str, float | None]
    memory: Mapping[str, int]
    sent: int

    def cost(self, runs: int, seconds: float, after: Look) -> Cost:
        """What was used between this look and a later one."""
        server = after.server - self.server
        cpu = {"server": server.cpu_s}
        for name, used in after.cpu_s.items():
            earlier = self.cpu_s.get(name)
            if used is not None and earlier is not None:
                cpu[name] = used - earlier
        return Cost(runs, seconds, server, cpu, after.memory, after.sent - self.sent)


@dataclass(slots=True)
class Stage:
    """A server, and the processes on it; see `staged`."""

    home: Path
    endpoint: Endpoint
    bus: RedisBus
    wire: Wire
    """Its own connection: whoever measures asks beside the bus."""
    beside: Mapping[str, int]
    """Other processes whose time is counted: name → process id."""
    fleet: Fleet
    planning: Fleet
    """The planner alone: it comes and goes."""
    worker_url: str | None = None
    """By which workers reach the server, where that is another way than everybody else's."""
    sent: Sent | None = None
    """What is counted by somebody who watches the server."""
    asked: int = 0
    """Commands of its own while it waited for batches: they are no batch's."""
    _failing: dict[int, asyncio.Task[None]] = field(default_factory=dict)

    def options(self, role: Role, name: str) -> RoleOptions:
        """Of a process of this stage: it serves every batch, with the suite that the batch was made of."""
        url = self.worker_url if role is Role.WORKER else None
        return RoleOptions(role=role, url=url, home=str(self.home), name=name, check=False)

    async def start(self, workers: int, scorers: int = 1) -> None:
        """Start processes, and wait until they serve. Raises EvalbusError, TimeoutError."""
        await self._start(self.fleet, [*[Role.WORKER] * workers, *[Role.SCORER] * scorers])

    async def plan(self) -> None:
        """Start the planner, which admits at once what there is."""
        await self._start(self.planning, [Role.PLANNER])

    async def _start(self, fleet: Fleet, roles: list[Role]) -> None:
        due = len(fleet.pids) + len(roles)
        fleet.start([self.options(role, f"{role}-{len(fleet.pids) + number}") for number, role in enumerate(roles)])
        before = self._failing.pop(id(fleet), None)
        if before is not None:
            before.cancel()
        self._failing[id(fleet)] = asyncio.create_task(fleet.failed())
        async with asyncio.timeout(_STARTING):
            while len(fleet.members(*Role)) < due:
                await self.pause()

    async def pause(self) -> None:
        """A moment. Raises EvalbusError when a process is beyond repair."""
        failing = set(self._failing.values())
        done, _ = await asyncio.wait(failing, timeout=_LOOK_EVERY)
        for task in done:
            task.result()

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float = _STARTING) -> None:
        """Wait for something. Raises TimeoutError, EvalbusError."""
        async with asyncio.timeout(seconds):
            while not await holds():
                await self.pause()

    async def create(self, suite: Suite, batch: BatchId) -> None:
        """Declare a batch of a suite."""
        await self.bus.create(spec_of(suite, batch))

    async def ended(self, batch: BatchId) -> None:
        """Wait for a batch's end, however long that takes. Raises EvalbusError."""
        row = self.bus.keys(batch).batch_row
        while not BatchStatus((await self.wire.call("HGET", row, "status") or b"open").decode()).ended:
            self.asked += 1
            await self.pause()
        self.asked += 1

    async def known(self, batch: BatchId) -> None:
        """Wait until all workers and scorers read the batch's streams."""
        for group, role in ((Group.WORKER, Role.WORKER), (Group.SCORER, Role.SCORER)):
            stream = self.bus.keys(batch).stream(group.stream)
            members = len(self.fleet.members(role))

            async def all_there(stream: str = stream, group: Group = group, members: int = members) -> bool:
                return len(await self.wire.call("XINFO", "CONSUMERS", stream, group)) >= members

            await self.until(all_there)

    async def warm(self, suite: Suite) -> None:
        """Do a batch that is not measured: what a process imports at its first run is no cost of a run."""
        await self.create(suite, BatchId("warm"))
        await self.plan()
        await self.ended(BatchId("warm"))
        await self.planning.stop()
        self._failing.pop(id(self.planning)).cancel()
        self.planning = Fleet(self.home / "logs", _PLAIN)

    async def run(self, suite: Suite, kind: Kind, batch: BatchId) -> Cost:
        """One batch, from its first admission to its close, and its history's completeness."""
        await self.create(suite, batch)
        await self.known(batch)
        before = await self.look()
        await self.plan()
        started = self._planner_cpu()
        await self.ended(batch)
        after = await self.look()
        # The planner's own start is none of the batch's cost; its first moments are read a little late.
        before = Look(before.server, {**before.cpu_s, Role.PLANNER.value: started}, before.memory, before.sent)
        return before.cost(suite.intended, await self.check(suite, kind, batch), after)

    def _planner_cpu(self) -> float | None:
        return _sum(cpu_seconds(pid) for pid in self.planning.pids)

    async def look(self) -> Look:
        """What everybody has used until now."""
        members = {role: list(self.fleet.members(role).values()) for role in (Role.WORKER, Role.SCORER)}
        members[Role.PLANNER] = list(self.planning.pids)
        cpu = {
            **{role.value: _sum(cpu_seconds(pid) for pid in pids) for role, pids in members.items()},
            **{name: cpu_seconds(pid) for name, pid in self.beside.items()},
        }
        memory = {
            role.value: max((resident_memory(pid) or 0 for pid in pids), default=0) for role, pids in members.items()
        }
        counts = await server_counts(self.wire)
        counts = replace(counts, commands=counts.commands - self.asked)
        return Look(counts, cpu, memory, 0 if self.sent is None else self.sent.by_clients - self.asked)

    async def check(self, suite: Suite, kind: Kind, batch: BatchId) -> float:
        """Seconds from the first admission to the close.

        Raises ViolationError for a history that is not complete, or that tells of more than was to be done.
        """
        wanted = expected(kind, suite.intended)
        found: Counter[str] = Counter()
        began = ended = 0
        async for entry in read_history(self.bus.link, self.bus.keys(batch)):
            committed = [f"{part.fence}.{part.op}" for part in entry.parts if part.verb == "commit"]
            found.update(committed)
            at = int(entry.id.partition("-")[0])
            began = began or (at if "admission.acquire" in committed else 0)
            ended = at if "histogram.close" in committed else ended
        wrong = {name: found[name] for name, count in wanted.items() if found[name] != count}
        if wrong or not ended:
            due = {name: wanted[name] for name in wrong}
            raise ViolationError(f"the history of {batch} is not complete: {wrong} where {due} are due")
        return max(ended - began, 1) / 1000


@contextlib.asynccontextmanager
async def private_server(home: Path) -> AsyncIterator[Endpoint]:
    """An empty one, which ends with the block. Raises ServerError."""
    endpoint = await asyncio.to_thread(Endpoint.from_options, None, home)
    try:
        yield endpoint
    finally:
        await endpoint.aclose()


@contextlib.asynccontextmanager
async def staged(home: Path, workers: int, beside: Mapping[str, int] | None = None) -> AsyncIterator[Stage]:
    """`workers` 0: no process is started yet. `beside`: as in `Stage`. All of it ends with the block."""
    async with contextlib.AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(private_server(home))
        bus = RedisBus(endpoint, SystemRuntime())
        stack.push_async_callback(bus.aclose)
        wire = await Wire.open(endpoint.address())
        stack.callback(wire.close)
        logs = home / "logs"
        stage = Stage(home, endpoint, bus, wire, beside or {}, Fleet(logs, _PLAIN), Fleet(logs, _PLAIN))
        stack.push_async_callback(_stop, stage)
        if workers:
            await stage.start(workers)
        yield stage


async def _stop(stage: Stage) -> None:
    await asyncio.gather(stage.fleet.stop(), stage.planning.stop())
    await asyncio.gather(*stage._failing.values(), return_exceptions=True)


def _sum(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) if found else None
