"""Machines that rest: a line when a rest begins, has another reason, or ends.

And when one begins a longer rest for the same reason: who comes to look at what stands still is to see why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bus.cluster import ServerBus
from bus.errors import ServerUnreachable
from bus.port import Counters
from bus.rests import Resting
from bus.types import ConsumerId
from workers.processes.rests import rests_of

__all__ = ["RestNews"]

_LONG: Final = 20.0
"""Seconds of a rest that is told of again."""


class RestNews:
    """Who was said to rest, and why."""

    every = 2.0

    def __init__(self, bus: ServerBus) -> None:
        """Nobody."""
        self._bus = bus
        self._told: Mapping[ConsumerId, Resting] = {}

    async def news(self, _: Counters, /) -> list[str]:
        """A line for each that is new; none while the server is away."""
        try:
            now = {one.consumer: one for one in await rests_of(self._bus)}
        except ServerUnreachable:
            return []
        said = [one.line for name, one in now.items() if _is_news(one, self._told.get(name))]
        said += [f"{name} works again" for name in self._told if name not in now]
        self._told = now
        return said


def _is_news(now: Resting, before: Resting | None) -> bool:
    if before is None or now.why != before.why:
        return True
    return now.seconds > max(_LONG, before.seconds)  # what was left of the rest before only grew less
