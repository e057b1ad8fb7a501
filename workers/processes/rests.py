"""A consumer's rests, told where people look: the server's list of them (`bus.rests`), and the role's metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bus.errors import ReplyError
from bus.rests import Resting
from bus.types import ConsumerId
from workers.naming import this_host
from workers.processes.breaker import Rest, Told

if TYPE_CHECKING:
    from bus.cluster import ServerBus

__all__ = ["rests_of", "telling"]


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
