"""The server of a schedule: its clock, its lives, and what it may lose.

A server that died is a while away, and comes back under another name, by which everybody knows it again: what it had
granted before is void (`bus.memory.restart`). One that is lost with its machine is followed by another that has not
heard the last of it. What that one knows is the world as it was when the fault struck, some time before the machine is
lost: so a copy is made in the schedules that need one, when they need it, and of no other moment.

What a close was answered has been waited for: of a batch that has ended nothing is lost any more.
"""

from __future__ import annotations

import asyncio

from bus.memory.bus import MemoryWorld
from bus.memory.restart import Saved, go_back, saved

__all__ = ["Clock", "Server"]


class Clock:
    """The server's clock: `bus.port.Runtime` of the world itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Right."""
        self._loop = loop
        self.ahead = 0.0
        """Seconds by which it is wrong."""

    def now(self) -> float:
        """See bus.port.Runtime."""
        return self._loop.time() + self.ahead

    async def sleep(self, seconds: float) -> None:
        """See bus.port.Runtime."""
        await asyncio.sleep(seconds)

    def token(self) -> str:
        """See bus.port.Runtime."""
        return "0" * 32

    def jitter(self) -> float:
        """See bus.port.Runtime."""
        return 0.5


class Server:
    """See the module's text."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """With nothing in it."""
        self._loop = loop
        self.clock = Clock(loop)
        self.world = MemoryWorld(self.clock)
        self.life = 0
        """How often another took its place, or itself came back."""
        self._timeline = 0
        """How often something was lost: what was copied before is of a past that never was."""
        self._up = 0.0
        self._name()

    def _name(self) -> None:
        self.world.server = f"server-{self.life}"

    @property
    def is_away(self) -> bool:
        """Whether nobody reaches it now."""
        return self._up > self._loop.time()

    async def reachable(self) -> None:
        """Wait until somebody answers."""
        while self.is_away:
            await asyncio.sleep(self._up - self._loop.time())

    def restart(self, seconds: float) -> None:
        """It dies here, and is back so much later, with all that it had."""
        self.life += 1
        self._up = max(self._up, self._loop.time() + seconds)
        self._name()

    def lose(self, seconds: float) -> None:
        """So much later it is lost, and with it all that it will have answered until then."""
        self._loop.call_later(seconds, self._fail_over, saved(self.world), self._timeline)

    def _fail_over(self, kept: Saved, timeline: int) -> None:
        if timeline != self._timeline or any(batch.ended for batch in self.world.batches.values()):
            return
        self._timeline += 1
        go_back(self.world, kept)
        self.restart(0.0)

    def jump(self, seconds: float, until: float) -> None:
        """Its clock jumps, and jumps back `until` seconds later."""
        self.clock.ahead += seconds
        self._loop.call_later(until, self._set_right, seconds)

    def _set_right(self, seconds: float) -> None:
        self.clock.ahead -= seconds
