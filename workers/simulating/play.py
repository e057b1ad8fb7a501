"""One schedule: a batch from its declaration to its end, with what goes wrong on the way.

    faults may strike ── horizon ── they strike no more ── the batch must end within the setting's patience

The horizon is some twenty lease times: long enough for a run to lose several holders.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from bus.checker import Books
from bus.memory.batch import MemoryBatch
from bus.memory.bus import MemoryBus
from bus.memory.export import exported
from bus.types import ConsumerId
from workers.batch_spec import spec_of
from workers.simulating import acting, roles
from workers.simulating.clock import VirtualLoop
from workers.simulating.faults import Dice, Fault, Source
from workers.simulating.judging import searched_here
from workers.simulating.lab import Lab
from workers.simulating.machines import Machines
from workers.simulating.mutants import Mutant
from workers.simulating.process import Place, Process, track_tasks
from workers.simulating.server import Server
from workers.simulating.setting import BATCH, Setting

__all__ = ["HORIZON", "Crew", "Played", "play"]

HORIZON: Final = 20.0
"""Lease times in which faults may strike."""
_LOOK: Final = 0.25
"""Lease times between two looks at the batch."""
_LAG: Final = 5.0
"""Lease times for those who lag behind when the batch has ended."""


@dataclass(frozen=True, slots=True)
class Crew:
    """How many processes work on the batch."""

    planners: int = 1
    workers: int = 2
    scorers: int = 1
    together: int = 1
    """So many of each kind share a machine; 1: each has one to itself."""

    def machine_of(self, name: str) -> str:
        """The machine of `worker-3`."""
        if self.together == 1:
            return name
        return f"machine-{-(-int(name.rpartition('-')[2]) // self.together)}"


@dataclass(frozen=True, slots=True)
class Played:
    """What a schedule came to."""

    faults: tuple[Fault, ...]
    """Those that struck, in order."""
    lines: tuple[bytes, ...]
    """The history's export."""
    ended: bool
    seconds: float
    """Of the simulated clock, until the batch had ended."""
    late: float
    """Lease times from the last fault to the end."""
    books: Books | None
    """The endpoint's own; None where the server has lost what it may know of."""
    timed: bool
    """The server's clock was right all the time."""
    broken: tuple[str, ...]
    """What the roles themselves did wrong: exceptions that nobody foresaw."""
    estimated: int
    """Tokens that the ledger holds by a guess."""
    given_up: tuple[str, ...] = ()
    """Runs that were ended for what machines could not do …"""
    wrongly: tuple[str, ...] = ()
    """… and of these, while another machine could."""


def play(setting: Setting, seed: str, faults: Source, crew: Crew = Crew(), mutant: Mutant | None = None) -> Played:
    """Play a schedule. `seed`: of all that is drawn beside the faults. `mutant`: a fence with a check taken out."""
    loop = VirtualLoop()
    collects = gc.isenabled()
    gc.disable()  # a schedule is short and makes many small things: looking for garbage meanwhile is a tenth of it
    try:
        with tempfile.TemporaryDirectory(prefix="evalbus-simulated-", dir=_memory()) as work:
            stage = _Stage(setting, seed, faults, crew, Path(work), mutant)
            with searched_here():
                return loop.run(stage.play(loop))  # type: ignore[no-any-return]
    finally:
        loop.close()
        if collects:
            gc.enable()


def _memory() -> str | None:
    """Where workspaces are made: they are many and small, and none outlives its schedule."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a directory of our own is made in it


@dataclass(slots=True)
class _Stage:
    setting: Setting
    seed: str
    faults: Source
    crew: Crew
    work: Path
    mutant: Mutant | None
    lab: Lab = field(default_factory=Lab)
    broken: list[str] = field(default_factory=list)
    everybody: list[asyncio.Task[None]] = field(default_factory=list)
    lives: Counter[str] = field(default_factory=Counter)
    place: Place = field(init=False)
    over: bool = False

    async def play(self, loop: VirtualLoop) -> Played:
        track_tasks(loop)
        loop.set_exception_handler(self._told)
        acting.LAB.set(self.lab)
        acting.BINS.set(tuple(self.setting.suite.bins))
        struck: list[Fault] = []
        server, plane = Server(loop), self.setting.plane
        self.place = Place(
            server,
            plane,
            self.setting.suite.lease,
            self.lab,
            self.faults,
            contextvars.copy_context(),
            Counter(),
            struck,
            Machines(loop, self.setting.suite.lease),
        )
        begun = loop.time()
        batch = await self._declared(server)
        for role, count in (
            ("planner", self.crew.planners),
            ("worker", self.crew.workers),
            ("scorer", self.crew.scorers),
        ):
            for number in range(1, count + 1):
                self._start(role, f"{role}-{number}")
        await self._until_ended(batch, loop)
        ended = loop.time()
        await self._let_go()
        # Places of requests that nobody brought to an end are the ledger's guess, or unknown still.
        whole = batch.estimated == 0 and batch.ledger.reserved == 0
        lost = any(fault.kind == "server-lost" for fault in struck)
        return Played(
            faults=tuple(struck),
            lines=tuple(exported(batch, plane)),
            ended=batch.ended,
            seconds=ended - begun,
            late=max(ended - self.last(begun), 0.0) / self.setting.suite.lease,
            books=None if lost else self.lab.books(tokens=whole and batch.has_budget),
            timed=all(fault.kind != "server-clock" for fault in struck),
            broken=tuple(self.broken),
            estimated=batch.estimated,
            given_up=tuple(self.place.machines.ends),
            wrongly=tuple(self.place.machines.wrong),
        )

    async def _declared(self, server: Server) -> MemoryBatch:
        plane = self.setting.plane
        bus = MemoryBus(server.world, server.clock, plane=plane)
        decision = await bus.create(spec_of(self.setting.suite, BATCH, plane=plane))
        assert decision.applied, decision
        batch = server.world.batches[BATCH]
        if self.mutant is not None:
            self.mutant.take_over(batch)
        return batch

    def _told(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What nobody awaits: a copy of a step that arrived late, and broke. Of dead tasks nobody asks anything."""
        if "handle" in context:
            self.broken.append(f"{context['message']}: {context.get('exception')!r}")

    def last(self, begun: float) -> float:
        """When something went wrong last."""
        return max(self.place.last, begun)

    # --- processes -----------------------------------------------------------------------------------------

    def _start(self, role: str, name: str, consumer: str = "") -> None:
        """Start a process, or the next life of one. `consumer`: the name by which the bus knows it."""
        if self.over:
            return
        life = self.lives[name]
        self.lives[name] += 1
        consumer = ConsumerId(consumer or name)
        machine = self.crew.machine_of(name) if consumer == name else consumer
        process = Process(name, life, self.seed, self.place, role, machine)
        suite, tell = self.setting.suite, self.broken.append

        def made() -> roles.Role:
            match role:
                case "planner":
                    return roles.planner(process, suite, consumer)
                case "worker":
                    return roles.worker(process, suite, consumer, self.work, tell)
                case _:
                    return roles.scorer(process, suite, consumer, self.work, tell)

        async def main() -> None:
            running = made()
            process.on_stop = lambda fault: running.stop()
            try:
                await running.run()
            except Exception as error:
                self.broken.append(f"{type(error).__name__} ended {name}: {error}")

        task = process.start(main())
        self.everybody.append(task)
        process.on_death = partial(self._comes_back, role, name, consumer)

        def stopped(_: asyncio.Task[None]) -> None:
            if not process.dead and not self.over:
                process.loop.call_later(self.setting.suite.lease, self._start, role, name, consumer)

        task.add_done_callback(stopped)

    def _comes_back(self, role: str, name: str, consumer: str, fault: Fault) -> None:
        if fault.kind.startswith("gone"):
            consumer = f"{name}~{self.lives[name]}"
        asyncio.get_running_loop().call_later(fault.seconds, self._start, role, name, consumer)

    # --- the end -------------------------------------------------------------------------------------------

    async def _until_ended(self, batch: MemoryBatch, loop: VirtualLoop) -> None:
        lease, began = self.setting.suite.lease, loop.time()
        while not batch.ended:
            await asyncio.sleep(_LOOK * lease)
            now = loop.time()
            if isinstance(self.faults, Dice) and now - began > HORIZON * lease:
                self.faults.end()
            if now - max(self.place.last, began) > HORIZON * lease + self.setting.patience:
                return
        if isinstance(self.faults, Dice):
            self.faults.end()

    async def _let_go(self) -> None:
        """Those who lag behind have some time to say what must not be taken any more."""
        self.over = True
        waits = [task for task in self.everybody if not task.done()]
        if waits:
            await asyncio.wait(waits, timeout=_LAG * self.setting.suite.lease)
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        for process in self.place.processes:
            process.kill()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if left:
            await asyncio.wait(left, timeout=60.0)
