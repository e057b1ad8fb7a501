"""One poller for all who look at the same thing, and none when nobody looks.

Twenty browsers on one batch must not be twenty readers of the server, and a tab that was forgotten in the background
must not be one. Who looks gets the newest moment at once and then each newer one; what was missed is skipped, because a
moment holds everything.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from bus.errors import EvalbusError

__all__ = ["Feed", "Moment"]

T = TypeVar("T")

_AGAIN: Final = 2.0  # seconds until the next look after one that failed


@dataclass(frozen=True, slots=True)
class Moment(Generic[T]):
    """What was seen, or why nothing could be. `number` grows by one with each."""

    number: int
    seen: T | None
    """The last that was seen, also while there is trouble; None when there has been nothing yet."""
    trouble: str = ""


class Feed(Generic[T]):
    """See the module's text. All who follow it run in one event loop."""

    def __init__(self, look: Callable[[], Awaitable[T]], pause: Callable[[T], float], *, linger: float = 0.0) -> None:
        """`look` reads; `pause` says how many seconds to leave it alone after what was seen.

        `linger`: seconds that the poller goes on when the last has left: the next may be the same one, come back.
        """
        self._look, self._pause, self._linger = look, pause, linger
        self._numbers = itertools.count(1)
        self._newest: Moment[T] | None = None
        self._news = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._over = False
        self.lookers = 0

    @property
    def polling(self) -> bool:
        """Whether the server is being asked."""
        return self._poller is not None

    async def follow(self, after: int = 0) -> AsyncGenerator[Moment[T]]:
        """Every moment that is newer than the one numbered `after`, as long as the caller likes and until `end`.

        Close it (`contextlib.aclosing`): the poller runs as long as anybody follows.
        """
        self.lookers += 1
        if self._poller is None:
            self._poller = asyncio.create_task(self._poll())
        try:
            while not self._over:
                news = self._news
                if self._newest is not None and self._newest.number != after:
                    after = self._newest.number
                    yield self._newest
                else:
                    await self._wait(news)
        finally:
            self.lookers -= 1
            if self.lookers == 0 and (self._over or not self._linger):
                self._stop()
            elif self.lookers == 0:
                asyncio.get_running_loop().call_later(self._linger, self._stop)

    def end(self) -> None:
        """Let everybody go who follows."""
        self._over = True
        self._news.set()
        self._stop()

    async def _wait(self, news: asyncio.Event) -> None:
        """Until there is news. What ended the poller ends its followers too, instead of leaving them waiting."""
        poller, waiting = self._poller, asyncio.ensure_future(news.wait())
        assert poller is not None, "it runs as long as anybody follows"
        try:
            await asyncio.wait([waiting, poller], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if poller.done() and not news.is_set():
            poller.result()

    async def _poll(self) -> None:
        while True:
            try:
                seen = await self._look()
            except EvalbusError as error:
                last = self._newest.seen if self._newest is not None else None
                self._publish(Moment(next(self._numbers), last, str(error)))
                await asyncio.sleep(_AGAIN)
            else:
                self._publish(Moment(next(self._numbers), seen))
                await asyncio.sleep(self._pause(seen))

    def _publish(self, moment: Moment[T]) -> None:
        self._newest = moment
        self._news.set()
        self._news = asyncio.Event()

    def _stop(self) -> None:
        if self.lookers:
            return
        if self._poller is not None:
            self._poller.cancel()
        self._poller, self._newest = None, None  # a moment that nobody kept up to date is none
