"""One wait for the disk, or for a replica, for all who want one: group commit, as databases have it.

A wait takes up to a second, and confirms whatever was applied before it began. So those who ask while one is under way
share the next one; a hundred batches that close in a second wait for two seconds together, not for a hundred.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

__all__ = ["GroupCommit"]


class GroupCommit:
    """See the module's text."""

    def __init__(self, wait: Callable[[], Awaitable[None]]) -> None:
        """`wait`: confirms all that was applied before it was called."""
        self._wait = wait
        self._under_way: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def confirmed(self) -> None:
        """What was applied before this call is confirmed. Raises what `wait` raises."""
        if self._next is None:
            self._next = asyncio.create_task(self._behind(self._under_way))
            self._next.add_done_callback(_heard)
        await asyncio.shield(self._next)  # others share it

    async def _behind(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        self._under_way, self._next = self._next, None
        await self._wait()

    def close(self) -> None:
        """Wait for nothing any more."""
        for task in (self._under_way, self._next):
            if task is not None:
                task.cancel()


def _heard(task: asyncio.Task[None]) -> None:
    """Whoever waited may be gone: then its failure is nobody's to hear."""
    if not task.cancelled():
        task.exception()
