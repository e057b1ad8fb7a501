"""A consumer's rests, told where people look: the server's list of them (`bus.rests`), and the role's metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from bus.errors import ReplyError, ServerUnreachable
from bus.rests import Resting
from bus.types import ConsumerId
from workers.naming import this_host
from workers.processes.resting import Rest, Told

if TYPE_CHECKING:
    from bus.cluster import ServerBus

__all__ = ["RestNews", "rests_of", "telling"]

_LOOK_EVERY: Final = 2.0
"""Seconds between two looks of who follows a batch."""
_LONG: Final = 20.0
"""Seconds of a rest that is told of again."""


def telling(bus: ServerBus, name: ConsumerId, counted: Callable[[bool], None] | None = None) -> Told:
    """What tells of one consumer. `counted`: the role's metrics, told whether it rests."""

    async def tell(rest: Rest | None) -> None:
        if counted is not None:
            counted(rest is not None)
        why, seconds = ("", 0.0) if rest is None else (rest.why, rest.seconds)
        await bus.rests.tell(name, this_host(), why, seconds)

    return tell


async def rests_of(bus: ServerBus) -> list[Resting]:
    """Who rests now; none where this user may not ask. Raises ServerUnreachable."""
    try:
        return await bus.rests.all()
    except ReplyError:
        return []


class RestNews:
    """What a run that goes on says of those that rest: a line when one begins, or has another reason.

    And when one begins a longer rest for the same reason: who comes to look at what stands still is to see why.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """Nothing was said. `clock`: seconds."""
        self._clock, self._next = clock, float("-inf")
        self._told: Mapping[ConsumerId, Resting] = {}

    async def news(self, bus: ServerBus) -> list[str]:
        """What is new; none when it was asked a moment ago."""
        if self._clock() < self._next:
            return []
        self._next = self._clock() + _LOOK_EVERY
        try:
            now = {one.consumer: one for one in await rests_of(bus)}
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
