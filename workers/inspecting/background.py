"""An event loop in a thread of its own, for other people's coroutines: they may block, and the role's heartbeats go on.

One for as long as the process needs it: models keep connections open, and those belong to their loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["Background"]

T = TypeVar("T")


class Background:
    """See the module's text. The thread starts with the first call, and never keeps a process from ending."""

    def __init__(self, name: str) -> None:
        """`name`: the thread's."""
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, job: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Start a coroutine there; the future is the calling loop's, and cancels it."""
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(job, self._started()))

    def soon(self, call: Callable[[], object]) -> None:
        """Have something called there; nothing, when nothing was ever run there, or it has ended."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(call)

    def close(self) -> None:
        """End the thread, and what is still in it."""
        loop, self._loop = self._loop, None
        if loop is None:
            return

        def end() -> None:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.call_later(0.1, loop.stop)

        loop.call_soon_threadsafe(end)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_work, args=(self._loop,), name=self._name, daemon=True).start()
        return self._loop


def _work(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
