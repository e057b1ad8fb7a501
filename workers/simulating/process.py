"""One simulated process: its clock, its random numbers, its way to the bus, and its death.

A process is a role's own code in tasks that carry it in their context. Whatever it does outside goes through
`gate`, which a stalled process does not pass until its time has come, and a dead one never. A death cancels its tasks;
what they still do on their way out reaches nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import inspect
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from bus.memory_bus import MemoryBus, MemoryWorld
from bus.memory_streams import MemoryStream
from bus.types import Plane
from workers.simulating.bending import bent, writes
from workers.simulating.faults import Fault, Source, Where
from workers.simulating.lab import Lab

__all__ = ["PROCESS", "Line", "Process", "Runtime", "track_tasks"]

PROCESS: ContextVar[Process] = ContextVar("evalbus_simulated_process")
"""Whose code is running."""

_LATENCY: Final = (0.000_2, 0.003)
"""Seconds that a call is on its way, at least and at most."""

_READS: Final = frozenset({"read", "own_pending", "take_idle"})
"""Calls by which entries are given out: when their answer is lost, the entries are ours and we do not know."""

_LOOKS: Final = frozenset(
    {
        "batches", "info", "counters", "rows", "run_ids", "transcript", "parked", "undelivered", "get_blob",
        "put_blob", "intents", "effects", "doubts", "free_slots", "has_room", "expired_calls",
    }
)  # fmt: skip
"""Calls that change nothing: all that can happen to them is that they take time."""


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

    world: MemoryWorld
    lab: Lab
    faults: Source
    context: contextvars.Context
    """In which no process is: the next one is not to know what the one before it was in the middle of."""
    counts: Counter[tuple[str, str]]
    """(process, what it did) → how often, over all its lives."""
    struck: list[Fault]
    """What did strike, in order."""
    last: float = 0.0
    """When, on the loop's clock."""
    processes: list[Process] = field(default_factory=list)
    """All that ever were."""


class Process:
    """See the module's text."""

    def __init__(self, name: str, life: int, seed: str, place: Place, group: str) -> None:
        """`life`: how often a process of this name was started before."""
        self.name, self.life, self.group = name, life, group
        self.loop = asyncio.get_running_loop()
        self.lab = place.lab
        self.runtime = Runtime(self, f"{seed}/{name}/{life}")
        self.dead = False
        self.on_death: Callable[[Fault], None] = lambda _fault: None
        self.on_stop: Callable[[Fault], None] = lambda _fault: None
        self.place = place
        self._until = 0.0
        self._tasks: list[asyncio.Task[Any]] = []
        self._context = place.context.copy()
        self._context.run(PROCESS.set, self)
        place.processes.append(self)

    # --- its tasks -----------------------------------------------------------------------------------------

    def start(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin to run."""
        return self.loop.create_task(main, context=self._context)

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
            self.place.last = self.loop.time() + fault.seconds
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

    async def sleep(self, seconds: float) -> None:
        """Wait; a fault may strike meanwhile."""
        await self.gate()
        fault = self.strikes("sleep", "sleep")
        await asyncio.sleep(seconds)
        if fault is not None and not self.dead:
            self.befall(fault)
        await self.gate()


class _Bus(MemoryBus):
    """The bus in memory; who waits for an entry waits on the loop's clock, and makes no tasks for it."""

    async def _arrival(self, streams: Sequence[MemoryStream], seconds: float) -> None:
        if len(streams) != 1:
            await super()._arrival(streams, seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await streams[0].arrived.wait()


class Line:
    """A process's way to the bus: `bus.port.Bus`, each call of which may be struck."""

    def __init__(self, process: Process) -> None:
        """To the world of the process."""
        self._process = process
        self._bus = _Bus(process.place.world, process.runtime)
        self._reconnected = 0

    @property
    def connections(self) -> int:
        """See bus.port.Bus."""
        return self._bus.connections + self._reconnected

    @property
    def plane(self) -> Plane:
        """Of the bus."""
        return self._bus.plane

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the bus has under this name
        """A call of the bus."""
        call = getattr(self._bus, name)
        if not inspect.iscoroutinefunction(call):
            return call
        made = self._looking(call) if name in _LOOKS else self._calling(name, call)
        setattr(self, name, made)  # found by itself from here on
        return made

    def _looking(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        process = self._process

        async def look(*args: object, **named: object) -> object:
            await process.gate()
            await asyncio.sleep(process.latency())
            answer = await call(*args, **named)
            await process.gate()
            return answer

        return look

    def _calling(self, name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        process = self._process
        is_read = name in _READS
        where: Where = "read" if is_read else "step"

        async def made(*args: object, **named: object) -> object:
            await process.gate()
            fault = process.strikes(name, where)
            if fault is None:
                if not is_read:
                    await asyncio.sleep(process.latency())
                answer = await call(*args, **named)
            else:
                answer = await self._struck(fault, name, call, args, named)
            await process.gate()
            return answer

        return made

    async def _struck(
        self, fault: Fault, name: str, call: Callable[..., Awaitable[Any]], args: tuple[Any, ...], named: dict[str, Any]
    ) -> object:
        process, kind = self._process, fault.kind
        if kind in ("crash-before", "gone-before", "stall-before", "stop", "clock"):
            process.befall(fault)
            await process.gate()
            return await call(*args, **named)
        if kind == "overtaken":
            await asyncio.sleep(fault.seconds)
            return await call(*args, **named)
        if kind in ("crossed", "bent"):
            await self._presented_falsely(kind, name, args, named)
            return await call(*args, **named)
        before = process.runtime.drawn
        answer = await call(*args, **named)
        match kind:
            case "lost" if name in _READS:
                self._reconnected += 1
                return []
            case "lost":
                await asyncio.sleep(fault.seconds)
                await process.gate()
                return await self._again(before, call, args, named)
            case "repeated":
                process.loop.call_later(fault.seconds, self._late_copy, before, call, args, named)
            case "taken" | "redelivered":
                self._meddle(kind)
            case _:
                process.befall(fault)
        return answer

    async def _again(
        self, drawn: int, call: Callable[..., Awaitable[Any]], args: tuple[Any, ...], named: dict[str, Any]
    ) -> object:
        """The very same call: the random ids that it draws are those of the first time."""
        runtime = self._process.runtime
        after, runtime.drawn = runtime.drawn, drawn
        try:
            return await call(*args, **named)  # a step of the bus in memory is done in one go: nobody draws meanwhile
        finally:
            runtime.drawn = after

    def _late_copy(
        self, drawn: int, call: Callable[..., Awaitable[Any]], args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        """What the network kept, and delivers whatever became of the sender."""
        copy = self._again(drawn, call, args, named)
        try:
            copy.send(None)
        except StopIteration:
            return
        raise AssertionError("a step of the bus in memory does not wait")

    async def _presented_falsely(self, kind: str, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Somebody else presents the same, or the same of somebody else; what it is answered is nobody's business."""
        process, bus = self._process, self._bus
        if kind == "crossed" and writes(name, args):
            other = MemoryBus(process.place.world, process.runtime, plane=Plane.SHADOW)
            await getattr(other, name)(*args, **named)
        forged = bent(name, args, named, process.runtime.jitter()) if kind == "bent" else None
        if forged is not None:
            await getattr(bus, name)(*forged.args, **forged.named)

    def _meddle(self, kind: str) -> None:
        """With the entries that this process was given."""
        for batch in self._process.place.world.batches.values():
            for stream in batch.streams.values():
                for entry, pending in list(stream.pending.items()):
                    if pending.consumer.partition("~")[0] != self._process.name:
                        continue
                    if kind == "taken":
                        pending.since -= 1e6
                    else:
                        stream.add(stream.entries[entry])


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
