"""Which consumers take no work now, and why: told by themselves, for whoever looks at the fleet.

Nothing goes by it, so it is written beside the scripts and is in no history: a batch's runs are not the machines' that
had them. A consumer that dies while it rests can't take its word back; what it said is forgotten a while after it would
have looked again. The clock is the server's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bus.errors import ReplyError, ServerUnreachable
from bus.keys import rests
from bus.link import Link
from bus.types import ConsumerId, Plane
from bus.wire import Reply, Wire

__all__ = ["Resting", "Rests", "resting_at"]

_FORGOTTEN: Final = 60_000
"""Milliseconds beyond which who should have looked again, and has not said so, is taken for gone."""
_LONGEST: Final = 500
"""Characters of a reason that are kept."""


@dataclass(frozen=True, slots=True)
class Resting:
    """A consumer that takes nothing."""

    consumer: ConsumerId
    host: str
    why: str
    seconds: float
    """Until it looks again whether it can; 0 when it should have."""

    @property
    def line(self) -> str:
        """In one line: who, where, why."""
        where = f" on {self.host}" if self.host else ""
        return f"{self.consumer}{where} takes nothing, and looks again in {self.seconds:.0f} s: {self.why}"


class Rests:
    """See the module's text. One a process, plane and shard."""

    def __init__(self, link: Link, plane: Plane, shard: int) -> None:
        """Nothing is asked yet."""
        self._link, self._key = link, rests(plane, shard)

    async def tell(self, consumer: str, host: str, why: str, seconds: float) -> None:
        """`consumer` takes nothing for so long; `why` empty: it does again. Raises nothing: it rests, told or not."""
        try:
            if not why:
                await self._link.command("HDEL", self._key, consumer)
                return
            now, flat = await self._link.commands([("TIME",), ("HGETALL", self._key)])
            told = {"host": host, "why": why[:_LONGEST], "until_ms": _ms(now) + round(1000 * seconds)}
            await self._link.command("HSET", self._key, consumer, json.dumps(told, ensure_ascii=False))
            gone = [name for name, (_, left) in _read(flat, now).items() if left < -_FORGOTTEN]
            if gone:
                await self._link.command("HDEL", self._key, *gone)
        except (ReplyError, ServerUnreachable):  # a user that may not, a server that is away
            return

    async def all(self) -> list[Resting]:
        """Who rests now. Raises ServerUnreachable, and ReplyError for a user that may not ask."""
        now, flat = await self._link.commands([("TIME",), ("HGETALL", self._key)])
        return _listed(flat, now)


async def resting_at(wire: Wire, plane: Plane, shard: int) -> list[Resting]:
    """Likewise, by a connection of one's own."""
    now, flat = await wire.calls([("TIME",), ("HGETALL", rests(plane, shard))])
    if isinstance(now, ReplyError):
        raise now
    if isinstance(flat, ReplyError):
        raise flat
    return _listed(flat, now)


def _listed(flat: Reply, now: Reply) -> list[Resting]:
    found = []
    for name, (told, left) in sorted(_read(flat, now).items()):
        if left >= -_FORGOTTEN:
            consumer, why = ConsumerId(name), " ".join(str(told.get("why", "")).split())
            found.append(Resting(consumer, str(told.get("host", "")), why, max(left, 0) / 1000))
    return found


def _read(flat: Sequence[bytes], now: Reply) -> Mapping[str, tuple[Mapping[str, object], int]]:
    """What was told, and the milliseconds until then. What cannot be read was told by nobody of ours."""
    found: dict[str, tuple[Mapping[str, object], int]] = {}
    for name, text in zip(flat[::2], flat[1::2], strict=True):
        try:
            told = json.loads(text)
            left = int(told["until_ms"]) - _ms(now)
        except (ValueError, TypeError, KeyError):
            told, left = {}, -_FORGOTTEN - 1
        found[name.decode("utf-8", "replace")] = (told, left)
    return found


def _ms(now: Reply) -> int:
    return int(now[0]) * 1000 + int(now[1]) // 1000
