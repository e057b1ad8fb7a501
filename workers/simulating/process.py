"""One simulated process: its clock, its random numbers, and its death. Its way to the bus is in line.py.

A process is a role's own code in tasks that carry it in their context. Whatever it does outside goes through
`gate`, which a stalled process does not pass until its time has come, and a dead one never. A death cancels its tasks;
what they still do on their way out reaches nobody.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from bus.types import Plane
from workers.simulating.faults import Fault, Source, Where
from workers.simulating.lab import Lab
from workers.simulating.machines import Machines, rest_after
from workers.simulating.server import Server

__all__ = ["PROCESS", "Place", "Process", "Runtime", "track_tasks"]

PROCESS: ContextVar[Process] = ContextVar("evalbus_simulated_process")
"""Whose code is running."""

_LATENCY: Final = (0.000_2, 0.003)
"""Seconds that a call is on its way, at least and at most."""

_FOR_SURE: Final = 10.0
"""Lease times in which a process that could do a run, and is asked to, has taken it."""


class Runtime:
    """`bus.port.Runtime` of a simulated process."""

    def __init__(self, process: Process, seed: str) -> None:
        """`seed`: of its random numbers."""
        self._process, self._seed = process, seed
        self._random = random.Random(seed)  # noqa: S311 - has to be repeatable
        self.drawn = 0
        """Tokens."""
        self.ahead = 0.0
        """Seconds by which its clock is ahead."""

    def now(self) -> float:
        """See bus.port.Runtime."""
        return self._process.loop.time() + self.ahead

    async def sleep(self, seconds: float) -> None:
        """See bus.port.Runtime."""
        await self._process.sleep(seconds)

    def token(self) -> str:
        """See bus.port.Runtime."""
        self.drawn += 1
        return hashlib.blake2b(f"{self._seed}/{self.drawn}".encode(), digest_size=16).hexdigest()

    def jitter(self) -> float:
        """See bus.port.Runtime."""
        return self._random.random()

    def latency(self) -> float:
        """Seconds that a call is on its way."""
        least, most = _LATENCY
        return least + (most - least) * self._random.random()


@dataclass(slots=True)
class Place:
    """Where a process is: what all of a schedule share."""

    server: Server
    plane: Plane
    lease: float
    """Seconds."""
    lab: Lab
    faults: Source
    context: contextvars.Context
    """In which no process is: the next one is not to know what the one before it was in the middle of."""
    counts: Counter[tuple[str, str]]
    """(process, what it did) → how often, over all its lives."""
    struck: list[Fault]
    """What did strike, in order."""
    machines: Machines
    last: float = 0.0
    """When, on the loop's clock."""
    processes: list[Process] = field(default_factory=list)
    """All that ever were."""


class Process:
    """See the module's text."""

    def __init__(self, name: str, life: int, seed: str, place: Place, group: str, machine: str = "") -> None:
        """`life`: how often a process of this name was started before. `machine`: by default it has one to itself."""
        self.name, self.life, self.group = name, life, group
        self.machine = machine or name
        self.loop = asyncio.get_running_loop()
        self.lab = place.lab
        self.runtime = Runtime(self, f"{seed}/{name}/{life}")
        self.dead = False
        self.on_death: Callable[[Fault], None] = lambda _fault: None
        self.on_stop: Callable[[Fault], None] = lambda _fault: None
        self.place = place
        self._until = self.loop.time()
        self._main: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._context = place.context.copy()
        self._context.run(PROCESS.set, self)
        place.processes.append(self)

    # --- its tasks -----------------------------------------------------------------------------------------

    def start(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin to run."""
        self._main = self.loop.create_task(main, context=self._context)
        return self._main

    def owns(self, task: asyncio.Task[Any]) -> None:
        """A task of this process."""
        if len(self._tasks) >= 64:  # noqa: PLR2004 - now and then: most have ended
            self._tasks = [one for one in self._tasks if not one.done()]
        self._tasks.append(task)

    def kill(self) -> None:
        """Die. Nothing of it reaches anybody from here on."""
        self.dead = True
        for task in self._tasks:
            task.cancel()

    # --- what holds it up ----------------------------------------------------------------------------------

    async def gate(self) -> None:
        """Where it meets the world. Raises CancelledError when it is dead."""
        while self._until > self.loop.time() and not self.dead:
            await asyncio.sleep(self._until - self.loop.time())
        if self.dead:
            raise asyncio.CancelledError

    def latency(self) -> float:
        """Seconds that a call is on its way."""
        return self.runtime.latency()

    def strikes(self, at: str, where: Where = "step") -> Fault | None:
        """What happens to the next call of this kind."""
        counts, key = self.place.counts, (self.name, at)
        counts[key] += 1
        fault = self.place.faults.strike(self.name, at, counts[key], where)
        if fault is not None:
            self.place.struck.append(fault)
            # A server's clock is wrong for a lease time, however far it has jumped.
            lasts = self.place.lease if fault.kind == "server-clock" else fault.seconds
            lasts += rest_after(fault.seconds, self.place.lease) if where == "work" else 0.0
            self.place.last = max(self.place.last, self.loop.time() + lasts)
        return fault

    def befall(self, fault: Fault) -> None:
        """What concerns the process as a whole. Raises CancelledError when it is dead now."""
        match fault.kind:
            case "crash-before" | "crash-after" | "gone-before" | "gone-after":
                self.kill()
                self.on_death(fault)
                raise asyncio.CancelledError
            case "stall-before" | "stall-after":
                self._until = self.loop.time() + fault.seconds
            case "stop":
                self.on_stop(fault)
            case "clock":
                self.runtime.ahead += fault.seconds

    # --- its machine ---------------------------------------------------------------------------------------

    def begins(self, at: str, run: str) -> None:
        """A solver's work begins, or a verdict's: its machine may break by it."""
        fault = self.strikes(at, "work")
        if fault is not None:
            self.place.machines.breaks(fault, self.machine, run)

    def unable(self, run: str) -> str:
        """Why its machine can't do this run now; empty when it can."""
        return self.place.machines.unable(self.machine, run)

    def ends_for_machines(self, run: str) -> None:
        """It ends a run that machines could not do. None of its kind may have been there that could."""
        machines, patience = self.place.machines, _FOR_SURE * self.place.lease
        machines.ends.append(run)
        could = [one.name for one in self.place.processes if one.group == self.group and one._could(run, patience)]
        if could:
            machines.wrong.append(f"{run}, which {could[0]} could have done for {_FOR_SURE:g} lease times")

    def _could(self, run: str, seconds: float) -> bool:
        is_there = not self.dead and self._main is not None and not self._main.done()
        is_awake = self._until <= self.loop.time() - seconds
        return is_there and is_awake and self.place.machines.has_been_fit(self.machine, run, seconds)

    # --- time ----------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """Wait; a fault may strike meanwhile."""
        await self.gate()
        fault = self.strikes("sleep", "sleep")
        await asyncio.sleep(seconds)
        if fault is not None and not self.dead:
            self.befall(fault)
        await self.gate()


def track_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Let every process know its tasks: they carry it in their context."""

    def made(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        /,
        *,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, context=context)
        process = PROCESS.get(None) if context is None else context.get(PROCESS)
        if process is not None:
            process.owns(task)
        return task

    loop.set_task_factory(made)
