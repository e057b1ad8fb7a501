"""An event loop on which no time passes but the one that somebody waits for.

The loop is asyncio's own. Only its selector is another: asked to wait until the next timer, it sets the clock there and
returns. So a lease of ten seconds costs no longer than what is done meanwhile, and the same program takes the same
turns each time. What would go to a thread is done at once: a thread's end comes when it likes.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, Final

from workers import usercode

__all__ = ["EPOCH", "StandstillError", "VirtualLoop"]

EPOCH: Final = 1_000_000.0
"""Seconds on the clock of a loop that begins: entry ids are made of it, and none may be 0."""


class StandstillError(Exception):
    """Everybody waits for somebody else, and nobody for the time."""


class _NeverWaits(selectors.SelectSelector):
    """A selector that moves a loop's clock instead of waiting. There is no traffic: nothing is ever ready."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Let the time pass. Raises StandstillError when there is nothing to wait for."""
        if timeout is None:
            raise StandstillError
        if timeout > 0:
            self.loop.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module's text."""

    def __init__(self) -> None:
        """At the epoch."""
        self._virtual = EPOCH
        selector = _NeverWaits()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        """Seconds."""
        return self._virtual

    def advance(self, seconds: float) -> None:
        """Let so much time pass."""
        self._virtual += seconds

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        """Do it now."""
        done: asyncio.Future[Any] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def run(self, main: Any) -> Any:  # noqa: ANN401 - what the coroutine returns
        """Run a coroutine to its end, everything in this thread."""
        asyncio.set_event_loop(self)
        try:
            with usercode.at_once():
                return self.run_until_complete(main)
        finally:
            asyncio.set_event_loop(None)
