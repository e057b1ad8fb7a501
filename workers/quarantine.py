"""A process in which many runs are driven at a time, or one suspect alone.

A run that kills its process takes its neighbours in that process with it, and their claims count towards poison as
much as its own. So an entry that was given to somebody before is a suspect: it waits here until it has the process
for itself, and is claimed only then. Whatever dies from there on is its own doing, and nothing is counted against
those that wait beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Quarantine"]


class Quarantine:
    """Many ordinary runs at a time, or one suspect alone."""

    def __init__(self) -> None:
        """Nobody is in."""
        self._ordinary = 0
        self._alone = False
        self._waiting = 0
        self._changed = asyncio.Condition()

    @property
    def is_wanted(self) -> bool:
        """Whether a suspect waits to have the process for itself."""
        return self._waiting > 0

    @asynccontextmanager
    async def enter(self, *, suspect: bool) -> AsyncIterator[None]:
        """Wait for the place; a waiting suspect goes before ordinary runs that come later."""
        async with self._changed:
            if suspect:
                self._waiting += 1
                try:
                    await self._changed.wait_for(lambda: not self._alone and self._ordinary == 0)
                finally:
                    self._waiting -= 1
                self._alone = True
            else:
                await self._changed.wait_for(lambda: not self._alone and self._waiting == 0)
                self._ordinary += 1
        try:
            yield
        finally:
            async with self._changed:
                if suspect:
                    self._alone = False
                else:
                    self._ordinary -= 1
                self._changed.notify_all()
