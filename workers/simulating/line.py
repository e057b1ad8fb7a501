"""A simulated process's way to the bus, each call of which may be struck.

A call is on its way for a moment, is applied at once and whole, and is answered. While the server is away it waits, as
a link does that is opened again and again; and behind a new connection idle times mean nothing for a lease time.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from bus.memory.bus import MemoryBus
from bus.memory.streams import MemoryStream
from bus.types import BatchId, Plane
from workers.simulating.bending import bent, writes
from workers.simulating.faults import Fault, Where
from workers.simulating.process import Process
from workers.simulating.server import Server

__all__ = ["Line"]

_READS: Final = frozenset({"read", "own_pending", "take_idle"})
"""Calls by which entries are given out: when their answer is lost, the entries are ours and we do not know."""

_OTHER: Final = {Plane.LIVE: Plane.SHADOW, Plane.SHADOW: Plane.LIVE}

_LOOKS: Final = frozenset(
    {
        "batches", "info", "counters", "rows", "ends", "run_ids", "transcript", "parked", "undelivered", "get_blob",
        "put_blob", "intents", "effects", "doubts", "free_slots", "has_room", "expired_calls",
    }
)  # fmt: skip
"""Calls that change nothing: all that can happen to them is that they take time."""


_Call = Callable[..., Awaitable[Any]]


class _Bus(MemoryBus):
    """The bus in memory; who waits for an entry waits on the loop's clock, and makes no tasks for it."""

    server: Server

    async def _arrival(self, streams: Sequence[MemoryStream], seconds: float) -> None:
        if len(streams) == 1:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await streams[0].arrived.wait()
        else:
            await super()._arrival(streams, seconds)
        await self.server.reachable()


class Line:
    """A process's way to the bus: `bus.port.Bus`, each call of which may be struck."""

    def __init__(self, process: Process) -> None:
        """To the world of the process."""
        place = process.place
        self._process, self._server = process, place.server
        self._bus = _Bus(place.server.world, process.runtime, plane=place.plane)
        self._bus.server = place.server
        self._reconnected = 0
        self._life = place.server.life
        self._grace_until = float("-inf")

    @property
    def connections(self) -> int:
        """See bus.port.Bus."""
        return self._bus.connections + self._reconnected + self._server.life

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

    async def confirm(self, batch: BatchId) -> None:
        """See bus.port.Bus: what the server may lose is drawn, and no wait changes that."""

    async def _connected(self) -> None:
        """To the server that is there: behind a new connection nothing may be taken from the silent for a while."""
        await self._server.reachable()
        if self._life != self._server.life:
            self._life = self._server.life
            self._grace_until = self._process.runtime.now() + self._process.place.lease

    def _looking(self, call: _Call) -> _Call:
        process = self._process

        async def look(*args: object, **named: object) -> object:
            await process.gate()
            await asyncio.sleep(process.latency())
            await self._connected()
            answer = await call(*args, **named)
            await process.gate()
            return answer

        return look

    def _calling(self, name: str, call: _Call) -> _Call:
        process = self._process
        is_read = name in _READS
        where: Where = "read" if is_read else "step"

        async def made(*args: object, **named: object) -> object:
            await process.gate()
            fault = process.strikes(name, where)
            if fault is None:
                if not is_read:
                    await asyncio.sleep(process.latency())
                await self._connected()
                if name == "take_idle" and process.runtime.now() < self._grace_until:
                    return []
                answer = await call(*args, **named)
            else:
                answer = await self._struck(fault, name, call, args, named)
            await process.gate()
            return answer

        return made

    async def _struck(
        self, fault: Fault, name: str, call: _Call, args: tuple[Any, ...], named: dict[str, Any]
    ) -> object:
        process, kind = self._process, fault.kind
        if kind in ("crash-before", "gone-before", "stall-before", "stop", "clock"):
            process.befall(fault)
            await process.gate()
        elif kind == "overtaken":
            await asyncio.sleep(fault.seconds)
        elif kind == "server-clock":
            self._server.jump(fault.seconds, process.place.lease)
        await self._connected()
        if kind in ("crossed", "bent"):
            await self._presented_falsely(kind, name, args, named)
        elif kind == "server-lost":
            self._server.lose(fault.seconds)
        before = process.runtime.drawn
        answer = await call(*args, **named)
        match kind:
            case "lost" if name in _READS:
                self._reconnected += 1
                return []
            case "lost":
                await asyncio.sleep(fault.seconds)
                return await self._again(before, call, args, named)
            case "server-restart":
                self._server.restart(fault.seconds)
                return await self._again(before, call, args, named)
            case "repeated":
                sent_to = self._server.world.server
                process.loop.call_later(fault.seconds, self._late_copy, sent_to, before, call, args, named)
            case "taken" | "redelivered":
                self._meddle(kind)
            case "crash-after" | "gone-after" | "stall-after":
                process.befall(fault)
        return answer

    async def _again(self, drawn: int, call: _Call, args: tuple[Any, ...], named: dict[str, Any]) -> object:
        """The sender sends the very same call again."""
        await self._process.gate()
        await self._connected()
        return await self._once_more(drawn, call, args, named)

    async def _once_more(self, drawn: int, call: _Call, args: tuple[Any, ...], named: dict[str, Any]) -> object:
        """The random ids that it draws are those of the first time."""
        runtime = self._process.runtime
        after, runtime.drawn = runtime.drawn, drawn
        try:
            return await call(*args, **named)  # a step of the bus in memory is done in one go: nobody draws meanwhile
        finally:
            runtime.drawn = after

    def _late_copy(self, sent_to: str, drawn: int, call: _Call, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """What the network kept, and delivers whatever became of the sender.

        It names the life of the server that it was sent to. Where that is not the one that its batch knows, it is
        refused for that, and nobody is there who would raise the floor and ask again.
        """
        world = self._server.world
        if self._server.is_away or any(batch.server != sent_to for batch in world.batches.values()):
            return
        self._bus.sent_to = sent_to
        copy = self._once_more(drawn, call, args, named)
        try:
            copy.send(None)
        except StopIteration:
            return
        finally:
            self._bus.sent_to = None
        raise AssertionError("a step of the bus in memory does not wait")

    async def _presented_falsely(self, kind: str, name: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Somebody else presents the same, or the same of somebody else; what it is answered is nobody's business."""
        process, bus = self._process, self._bus
        if kind == "crossed" and writes(name, args):
            other = MemoryBus(self._server.world, process.runtime, plane=_OTHER[process.place.plane])
            await getattr(other, name)(*args, **named)
        forged = bent(name, args, named, process.runtime.jitter()) if kind == "bent" else None
        if forged is not None:
            await getattr(bus, name)(*forged.args, **forged.named)

    def _meddle(self, kind: str) -> None:
        """With the entries that this process was given."""
        for batch in self._server.world.batches.values():
            for stream in batch.streams.values():
                for entry, pending in list(stream.pending.items()):
                    if pending.consumer.partition("~")[0] != self._process.name:
                        continue
                    if kind == "taken":
                        pending.since -= 1e6
                    else:
                        stream.add(stream.entries[entry])
