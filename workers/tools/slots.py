"""The places of a tool, as far as this process uses them.

The server grants a place, over the whole fleet; here it is only kept track of those that this process has, or is about
to ask for, so that it does not ask for one twice: each refusal is a line in the batch's history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection

__all__ = ["Slot", "Slots"]


class Slots:
    """Places `<tool>.<k>`, k from 0."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        """None is used. `jitter`: numbers from 0 to 1, by which processes that look at once choose differently."""
        self._jitter = jitter
        self._used: dict[tuple[str, str], list[Slot]] = defaultdict(list)
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def one(self, tool: str, count: int, batch: str = "") -> AsyncIterator[Slot]:
        """One of a tool's places, not chosen yet: it waits until this process uses fewer. `count`: of the fleet.

        `batch`: where the places are its own.
        """
        slot = Slot(tool, count, self, batch)
        used = self._used[slot.whose]
        async with self._freed:
            await self._freed.wait_for(lambda: len(used) < count)
            used.append(slot)
        try:
            yield slot
        finally:
            async with self._freed:
                used.remove(slot)
                self._freed.notify_all()

    def choice(self, slot: Slot, free: Collection[str]) -> str | None:
        """One of those that are free and that no other call here has chosen."""
        chosen = {one.name for one in self._used[slot.whose] if one is not slot}
        left = [name for name in free if name not in chosen]
        return left[int(self._jitter() * len(left)) % len(left)] if left else None


class Slot:
    """One place in use."""

    def __init__(self, tool: str, count: int, slots: Slots, batch: str = "") -> None:
        """`count`: of the tool's places."""
        self.tool, self._slots = tool, slots
        self.whose = (batch, tool)
        self.names = [f"{tool}.{number}" for number in range(count)]
        """All of the tool's, as the server knows them."""
        self.name: str | None = None
        """The one that was chosen."""

    def choose(self, free: Collection[str]) -> bool:
        """Choose one of these; False when there is none."""
        self.name = self._slots.choice(self, free)
        return self.name is not None
