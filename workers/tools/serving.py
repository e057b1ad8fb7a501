"""What a worker process has for tools: their boxes, the bells of its runs, and a consumer beside that of runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from bus.port import BatchSpec, Bus, Group, Runtime
from bus.types import BatchId, ConsumerId
from workers import usercode
from workers.catalogue import Catalogue, Served
from workers.consumer import Consumer
from workers.conversation import Conversation
from workers.processes.breaker import Told
from workers.quarantine import Quarantine
from workers.suite import Suite
from workers.tools.executor import Executor
from workers.tools.plane import Tools
from workers.tools.toolbox import Toolboxes
from workers.tools.waking import Wakings
from workers.workspace import Workspace

__all__ = ["SLOTS", "JointConsumer", "Toolroom", "ToolsOf"]

ToolsOf: TypeAlias = Callable[[Served, Conversation, Workspace], Tools]

SLOTS = 64
"""Calls that one worker process has in hand at a time. They mostly wait; a tool's own slots say how many are made."""


class _Consumer(Protocol):
    """A consumer, or several."""

    def stop(self) -> None: ...

    async def run(self) -> None: ...

    def patience(self) -> float: ...

    def lease(self) -> float: ...


class Toolroom:
    """See the module's text. One for a process: what its runs call and what it executes for others share it."""

    def __init__(self) -> None:
        """Nothing is prepared yet."""
        self._boxes, self._wakings = Toolboxes(), Wakings()
        self.quarantine = Quarantine()
        """For the consumer of the process's runs, too: a tool that kills would take them along."""

    def tools_of(self, bus: Bus, runtime: Runtime) -> ToolsOf:
        """What makes the tools of a run that this process holds."""

        def made(served: Served, conversation: Conversation, workspace: Workspace) -> Tools:
            box = self._boxes.of(served.suite)
            return Tools(conversation, bus, runtime, box, served.info, workspace, self._wakings)

        return made

    def consumer(
        self, bus: Bus, runtime: Runtime, name: ConsumerId, catalogue: Catalogue, told: Told | None = None
    ) -> Consumer:
        """A consumer of the tools' stream, of the batches that the catalogue serves. `told`: of its rests.

        `bus` is its own, with a reading connection of its own: one that waits for runs would let no tool through.
        """
        executor = Executor(bus, runtime, name, self._boxes, self._wakings, self.quarantine, catalogue.suites)
        return Consumer(
            bus, runtime, Group.TOOLS, name, _ToolBatches(catalogue), executor, SLOTS,
            independent=True, quarantine=self.quarantine, opened=catalogue.one_met, told=told,
        )  # fmt: skip

    async def aclose(self) -> None:
        """Let go of what the tools hold open."""
        await self._boxes.aclose()


class _ToolBatches:
    """Of the batches that a catalogue serves, those with a tool that is called from the stream."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._prepared: set[BatchId] = set()
        self.prepare: Callable[[Suite, BatchSpec], None] | None = None

    async def open_batches(self) -> list[Served]:
        served = await self._catalogue.met()
        ours = [one for one in served if any(tool.from_stream for tool in one.suite.tools.values())]
        self._prepared &= {one.batch for one in ours}
        for one in ours:
            if self.prepare is not None and one.batch not in self._prepared:
                await usercode.call(self.prepare, one.suite, one.info.spec)
                self._prepared.add(one.batch)
        return ours

    async def ended(self) -> bool:
        return await self._catalogue.ended()


class JointConsumer:
    """Consumers that are one role: they stop together, and when one fails, all do."""

    def __init__(self, consumers: Sequence[_Consumer]) -> None:
        """In any order."""
        self._consumers = list(consumers)

    def stop(self) -> None:
        """Take nothing new and hand back what is held."""
        for consumer in self._consumers:
            consumer.stop()

    async def run(self) -> None:
        """Serve until all have ended. Raises EvalbusError."""
        tasks = [asyncio.create_task(consumer.run()) for consumer in self._consumers]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if any(task.done() and task.exception() is not None for task in tasks):
                self.stop()
            for task in tasks:
                await task
        finally:
            self.stop()
            for task in tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)

    def patience(self) -> float:
        """The longest of theirs: they share one event loop."""
        return max(consumer.patience() for consumer in self._consumers)

    def lease(self) -> float:
        """The shortest of theirs that is not 0."""
        return min((lease for consumer in self._consumers if (lease := consumer.lease())), default=0.0)
