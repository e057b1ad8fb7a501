"""A stage for the roles themselves: one batch, on a server or in memory, and the processes that work on it, each of
them a task with a bus of its own, as a process would have it, which may halt (`tests.fragile`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, cast

import pytest

from bus.keys import BatchKeys
from bus.memory.bus import MemoryBus, MemoryWorld
from bus.port import Bus, Counters, Group, RunRow
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import BatchId, ConsumerId, Plane, RunId
from bus.wire import Wire
from tests.batches import FixedDoor
from tests.fragile import Fragile, Moment
from tests.suites import MINIMAL, make_suite
from tests.waiting import PATIENCE, soon
from workers.batch_spec import spec_of
from workers.catalogue import Catalogue
from workers.consumer import Consumer
from workers.planner import Planner
from workers.runtime import SystemRuntime
from workers.scorer import ScorerRole
from workers.suite import Suite
from workers.worker import Worker

BATCH = BatchId("b")
A, B = RunId("a#1"), RunId("b#1")

SUITE = 'lease = "300ms"\nmax_deliveries = 2\n' + MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"')
"""Two cases; the solver below gets the first right and the second wrong."""

SOLVER = """\
async def solve(case, run):
    await run.note("thinking")
    return str(case.input)
"""

ONE_CASE = '{"id": "a", "input": "1", "target": "1"}\n'


class Place(Protocol):
    """Where a batch is: on a server or in memory."""

    def bus(self) -> Bus:
        """A bus for one process."""

    async def lose_group(self, group: Group) -> None:
        """The group is destroyed and made anew behind all that was written."""


class InMemory:
    """A world in this process."""

    def __init__(self) -> None:
        self.world = MemoryWorld(SystemRuntime())

    def bus(self) -> Bus:
        return MemoryBus(self.world, SystemRuntime())

    async def lose_group(self, group: Group) -> None:
        self.world.batches[BATCH].streams[group].lose_group(at_end=True)


class OnServer:
    """A server of the test's."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def bus(self) -> RedisBus:
        return RedisBus(FixedDoor(self.target.address()), SystemRuntime())

    async def lose_group(self, group: Group) -> None:
        wire = await Wire.open(self.target.address())
        stream = BatchKeys(Plane.LIVE, BATCH).stream(group.stream)
        await wire.call("XGROUP", "DESTROY", stream, group)
        await wire.call("XGROUP", "CREATE", stream, group, "$")
        wire.close()


class Lasting(Catalogue):
    """Of a role that does not end with its batch: what it still has to say then is said, and answered."""

    async def ended(self) -> bool:
        """Never."""
        return False


@dataclass(slots=True)
class Process:
    """One role, running."""

    bus: Fragile
    role: Planner | Consumer
    task: asyncio.Task[None]

    async def halted(self) -> None:
        """Wait until it has come to its moment."""
        await soon(self.bus.halted.wait())

    async def stopped(self) -> None:
        """Tell it to stop, and wait until it has."""
        self.role.stop()
        await soon(self.task)


@dataclass(slots=True)
class Stage:
    """See the module's text. The roles share the fleet's limits where there is a server to share them on."""

    batch: ClassVar[BatchId] = BATCH
    """The one that is worked on, and looked at."""

    place: Place
    root: Path
    bus: Bus = field(init=False)
    suite: Suite = field(init=False)
    processes: list[Process] = field(default_factory=list)
    handlers: list[Worker | ScorerRole] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The test's own bus, to look."""
        self.bus = self.place.bus()

    async def declare(self, toml: str = SUITE, **files: str) -> None:
        """Make the suite, and declare its batch."""
        self.suite = make_suite(self.root / "suite", toml, **{"agent_DOT_py": SOLVER, **files})
        decision = await self.bus.create(spec_of(self.suite, BATCH))
        assert decision.applied, decision

    # --- processes -----------------------------------------------------------------------------------------

    def planner(self, *moments: Moment) -> Process:
        """Start a planner."""
        bus = Fragile(self.place.bus(), moments)
        name = ConsumerId(f"p{len(self.processes)}")
        return self._start(bus, Planner(cast("Bus", bus), SystemRuntime(), name, self._catalogue(bus, Catalogue)))

    def worker(self, *moments: Moment, name: str = "") -> Process:
        """Start a worker."""
        return self._consumer(Group.WORKER, Worker, Catalogue, name, moments)

    def scorer(
        self, *moments: Moment, catalogue: type[Catalogue] = Catalogue, name: str = "", slots: int | None = None
    ) -> Process:
        """Start a scorer, which judges so many runs at a time, or as many as the suite says."""
        return self._consumer(Group.SCORER, ScorerRole, catalogue, name, moments, slots)

    def _consumer(
        self,
        group: Group,
        handler: type[Worker | ScorerRole],
        catalogue: type[Catalogue],
        name: str,
        moments: Sequence[Moment],
        slots: int | None = None,
    ) -> Process:
        real, runtime, consumer = self.place.bus(), SystemRuntime(), ConsumerId(name or f"c{len(self.processes)}")
        fragile = Fragile(real, moments)
        bus, limits_of = cast("Bus", fragile), real.limits_of if isinstance(real, RedisBus) else None
        made = handler(bus, runtime, consumer, self.root / "work" / consumer, limits_of)
        self.handlers.append(made)
        role = Consumer(bus, runtime, group, consumer, self._catalogue(fragile, catalogue), made, slots)
        return self._start(fragile, role)

    def _catalogue(self, bus: Fragile, kind: type[Catalogue]) -> Catalogue:
        return kind(cast("Bus", bus), self.suite, self.batch)

    def _start(self, bus: Fragile, role: Planner | Consumer) -> Process:
        process = Process(bus, role, asyncio.create_task(role.run()))
        self.processes.append(process)
        return process

    # --- what came of it -----------------------------------------------------------------------------------

    async def until(self, condition: Callable[[Counters], bool]) -> Counters:
        """The batch's counters as soon as they are so; fails when a role fails first."""
        async with asyncio.timeout(PATIENCE):
            while not condition(counters := await self.bus.counters(self.batch)):
                for process in self.processes:
                    if process.task.done():
                        process.task.result()
                await asyncio.sleep(0.005)
        return counters

    async def closed(self) -> Counters:
        """The counters of the batch when it has closed, every run accounted for."""
        counters = await self.until(lambda now: now.status.ended)
        assert counters.scored + counters.holes == counters.intended
        assert sum(counters.bins.values()) == counters.scored
        assert counters.in_flight == 0
        return counters

    async def row(self, run: RunId) -> RunRow:
        """One run."""
        (row,) = await self.bus.rows(self.batch, [run])
        return row

    async def kinds(self, run: RunId) -> list[str]:
        """What a run's transcript says, in short."""
        events = await self.bus.transcript(self.batch, run)
        return [event.payload.split('"')[3] for event in events]

    async def aclose(self) -> None:
        """End everything, the dead too."""
        for process in self.processes:
            process.bus.bury()
            process.task.cancel()
        await asyncio.gather(*(process.task for process in self.processes), return_exceptions=True)
        for handler in self.handlers:
            await handler.aclose()
        for bus in (self.bus, *(process.bus for process in self.processes)):
            await bus.aclose()


@pytest.fixture(params=["memory", "server"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    """Nothing declared yet, in either place."""
    place: Place = InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("server"))
    one = Stage(place, tmp_path)
    yield one
    await one.aclose()
