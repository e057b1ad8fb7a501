"""Who was killed when, and how its work came back: to somebody's hands, under a new lease, to its end.

When a process is killed the server is asked what stood as given to it, and from then on, every few hundredths of a
second, to whom and how often it was given since. When the work was claimed anew, and when it ended, is in the history.
All times are the server's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bus.checker import Checked
from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.keys import BatchKeys
from bus.port import Group
from bus.wire import Reply

__all__ = ["Deaths", "Recovery", "recoveries"]

Asked: TypeAlias = Callable[..., Awaitable[Reply]]

_LOOK_EVERY = 0.03  # seconds
_MOST = 1_000
_AWAY = (ReplyError, ServerUnfit, ServerUnreachable)


@dataclass(frozen=True, slots=True)
class _Given:
    """An entry that somebody has."""

    owner: str
    times: int


@dataclass(slots=True)
class _Death:
    consumer: str
    at_ms: int
    redelivered_ms: int | None = None
    """When the first of what it had was given to somebody again."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of one lease that its holder lost by being killed, in ms behind the kill."""

    redelivered: int | None
    """None: it was given to nobody again before it was looked for, or the server was away."""
    leased: int
    ended: int | None
    lost: int
    """How long its holder had had it: the work that is done again."""


@dataclass(slots=True)
class Deaths:
    """The deaths of one batch."""

    ask: Asked
    keys: BatchKeys
    deaths: list[_Death] = field(default_factory=list)
    _watchers: set[asyncio.Task[None]] = field(default_factory=set)

    async def told(self, consumer: str, kill: Callable[[], None]) -> None:
        """Note what it has, kill it, and look for what becomes of that."""
        had: Mapping[tuple[str, str], _Given] = {}
        with contextlib.suppress(*_AWAY):
            had = await self._given(consumer)
        kill()
        try:
            death = _Death(consumer, await self._now())
        except _AWAY:
            return
        self.deaths.append(death)
        if had:
            watcher = asyncio.create_task(self._watch(death, had))
            self._watchers.add(watcher)
            watcher.add_done_callback(self._watchers.discard)

    async def close(self) -> None:
        """Look no more."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)

    async def _now(self) -> int:
        seconds, micros = await self.ask("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _given(self, consumer: str | None = None) -> Mapping[tuple[str, str], _Given]:
        found = {}
        for group in (Group.WORKER, Group.SCORER):
            stream = self.keys.stream(group.stream)
            whose = [] if consumer is None else [consumer]
            for entry, owner, _, times in await self.ask("XPENDING", stream, group.on_server, "-", "+", _MOST, *whose):
                found[group.value, entry.decode()] = _Given(owner.decode(), int(times))
        return found

    async def _watch(self, death: _Death, had: Mapping[tuple[str, str], _Given]) -> None:
        while True:
            with contextlib.suppress(*_AWAY):
                now, given = await self._now(), await self._given()
                if any(given.get(entry, before) != before for entry, before in had.items()):
                    death.redelivered_ms = now
                    return
                if not given.keys() & had.keys():  # handled between two looks
                    death.redelivered_ms = now
                    return
            await asyncio.sleep(_LOOK_EVERY)


def recoveries(deaths: Deaths, found: Checked) -> Sequence[Recovery]:
    """What became of each lease that a killed process held."""
    recovered = []
    for death in deaths.deaths:
        for lost in found.preempted:
            if lost.consumer != death.consumer or not lost.granted_ms <= death.at_ms <= lost.superseded_ms:
                continue
            ended = found.ended_ms.get(lost.run)
            recovered.append(
                Recovery(
                    redelivered=None if death.redelivered_ms is None else max(death.redelivered_ms - death.at_ms, 0),
                    leased=lost.superseded_ms - death.at_ms,
                    ended=None if ended is None else ended - death.at_ms,
                    lost=death.at_ms - lost.granted_ms,
                )
            )
    return recovered
