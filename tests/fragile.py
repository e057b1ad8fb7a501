"""A bus that halts its process at a chosen moment: before a step is sent, or after it was applied and before the answer
is heard. From there on no call of that process comes back (it is dead), until the test lets it go on (it had stalled).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bus.errors import ServerUnreachable
from bus.port import Bus
from bus.types import Decision


@dataclass(frozen=True, slots=True)
class Moment:
    """When a process halts: at its next call of this step. `after`: when it was applied and answered something."""

    when: Literal["before", "after"]
    step: str

    def __str__(self) -> str:
        """As the tests are named by it."""
        return f"{self.when} {self.step}"


class Fragile:
    """A process's bus; see the module's text. `decided`: what it was answered."""

    def __init__(self, bus: Bus, moments: Sequence[Moment]) -> None:
        """The process halts at each of the moments in turn."""
        self._bus, self._moments = bus, list(moments)
        self._gone = False
        self._going = asyncio.Event()
        self._going.set()
        self.halted = asyncio.Event()
        self.decided: list[Decision] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the bus has under this name
        """The bus's own attribute; a call of it may be the last."""
        attribute = getattr(self._bus, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def call(*args: object, **named: object) -> object:
            await self._pass(Moment("before", name))
            answer = await attribute(*args, **named)
            if isinstance(answer, Decision):
                self.decided.append(answer)
            if answer:
                await self._pass(Moment("after", name))
            await self._pass(None)
            return answer

        return call

    async def _pass(self, moment: Moment | None) -> None:
        if self._moments and self._moments[0] == moment:
            self._moments.pop(0)
            self._going.clear()
            self.halted.set()
        await self._going.wait()
        if self._gone:
            raise ServerUnreachable("the process is gone")

    async def aclose(self) -> None:
        """What the kernel does for a process that has ended: its connections are closed."""
        await self._bus.aclose()

    def resume(self) -> None:
        """It had only stalled."""
        self.halted.clear()
        self._going.set()

    def bury(self) -> None:
        """Let the calls of a dead process end, when the test is over."""
        self._gone = True
        self._going.set()
