"""A machine that cannot work takes none: it rests, looks whether it can again, and begins with one.

A broken machine fails fast, so it has a free slot before all others, and draws what there is to do. This is the
breaker that keeps it from that, one for each consumer:

           a MachineError                 the time is over, and          the first that is driven
           or a handler that broke        what was wrong is right        to its end, or for a lease time
  serves ─────────────────────▶ rests ─────────────────────────▶ tries ─────────────────────▶ serves
                                 │  ▲                              │
                                 └──┘ still wrong: twice as long   └──▶ rests, twice as long: it was not right

It rests for a lease time at first; what it held is handed back at once, for others to have first, and what it holds
beside that is driven on. What turns out to be the run's own doing ends the rest that it was the reason of. Who
looks at the fleet is told through `told`: nobody should have to find the machine by what is not done there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from bus.errors import EvalbusError, MachineError
from bus.port import Runtime
from workers.redaction import redacted

__all__ = ["Breaker", "Rest", "Told", "look"]

log = structlog.get_logger("evalbus.consumer")

_LONGEST: Final = 120.0
"""Seconds between two looks, at most, unless a lease takes longer: somebody has made room and waits."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Why a consumer takes nothing, and for how many seconds from when this is told until it looks again."""

    why: str
    """One line, redacted."""
    seconds: float


Told: TypeAlias = Callable[[Rest | None], Awaitable[None]]
"""Tells the fleet that a consumer rests, and that it serves again. Raises nothing."""


async def look(recheck: Callable[[], Awaitable[None]] | None, seconds: float) -> None:
    """Raises MachineError when what was wrong still is, TimeoutError when the look hangs: that is no better.

    What a disk or a store that hung was asked for may never come, also when it is right again. So a look ends.
    """
    try:
        if recheck is not None:
            await asyncio.wait_for(recheck(), seconds)
    except (MachineError, TimeoutError):
        raise
    except (EvalbusError, OSError):  # a look that itself fails says nothing
        pass


class Breaker:
    """See the module's text."""

    def __init__(self, runtime: Runtime, told: Told | None = None) -> None:
        """It serves. `told`: by default nobody is."""
        self._runtime, self._told = runtime, told
        self._why: str = ""
        self._recheck: Callable[[], Awaitable[None]] | None = None
        self._until = float("-inf")
        self._lease = 0.0
        self._times = 0
        self._tries_since: float | None = None

    @property
    def why(self) -> str:
        """What is wrong with the machine; empty while it serves."""
        return self._why

    @property
    def seconds(self) -> float:
        """Until it may look again; 0 when it may now, or serves."""
        return max(self._until - self._runtime.now(), 0.0) if self._why else 0.0

    @property
    def is_on(self) -> bool:
        """Whether nothing is to be taken."""
        return bool(self._why) and not self.tries

    def room(self, free: int, tried: int) -> int:
        """Of so many free slots, how many may be filled. `tried`: taken since it tries, and not ended."""
        return min(free, 1 - tried) if self.tries else free

    @property
    def tries(self) -> bool:
        """Whether what is taken now is taken to find out."""
        return self._tries_since is not None

    def has_lasted(self, seconds: float) -> bool:
        """Whether one that was taken so long ago has found it out: what breaks at once would have broken by now."""
        return self.tries and seconds >= self._lease

    async def begin(self, error: BaseException, lease: float) -> bool:
        """Rest. `lease`: seconds of the lease of what failed. Of several that fail together the first counts.

        True for that one.
        """
        if self.is_on:
            return False
        why = redacted(" ".join(str(error).split()) or type(error).__name__)
        self._recheck = error.recheck if isinstance(error, MachineError) else None
        self._why, self._lease, self._tries_since = why, lease, None
        await self._rest()
        return True

    async def look(self) -> None:
        """The time is over: try again, or rest on when what was wrong still is."""
        try:
            await look(self._recheck, self._lease)
        except (MachineError, TimeoutError) as error:
            self._why = redacted(str(error)) or self._why
            await self._rest()
            return
        log.info("machine.tries", was=self._why)
        self._tries_since = self._runtime.now()

    async def went_well(self) -> None:
        """One was driven to its end."""
        if self.tries:
            await self.end()

    async def end(self) -> None:
        """Serve: nothing is wrong with this machine."""
        log.info("machine.serves", was=self._why)
        self._why, self._recheck, self._times, self._tries_since = "", None, 0, None
        if self._told is not None:
            await self._told(None)

    async def _rest(self) -> None:
        longest = max(_LONGEST, self._lease)
        seconds = min(self._lease * 2.0**self._times, longest) * (0.75 + 0.5 * self._runtime.jitter())
        self._times = min(self._times + 1, 30)
        self._until = self._runtime.now() + seconds
        log.warning("machine.rests", why=self._why, seconds=round(seconds, 1))
        if self._told is not None:
            await self._told(Rest(self._why, seconds))
