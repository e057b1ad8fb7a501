"""The places of a tool, as far as this process uses them.

The server grants a place, over the whole fleet; here it is only kept track of those that this process has, so that it
does not ask for them again: each refusal is a line in the batch's history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator

__all__ = ["Slots"]


class Slots:
    """Places `<tool>.<k>`, k from 0."""

    def __init__(self) -> None:
        """None is used."""
        self._used: dict[str, set[int]] = defaultdict(set)
        self._last: dict[str, int] = defaultdict(int)
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def one(self, tool: str, count: int) -> AsyncIterator[_Place]:
        """A place of the tool that this process does not use: it waits for one. `count`: how many there are."""
        async with self._freed:
            await self._freed.wait_for(lambda: len(self._used[tool]) < count)
            place = _Place(tool, next(self._free(tool, count)), self)
            self._used[tool].add(place.number)
        try:
            yield place
        finally:
            async with self._freed:
                self._used[tool].discard(place.number)
                self._last[tool] = place.number
                self._freed.notify_all()

    def move(self, place: _Place, count: int) -> None:
        """Another place in its stead, the next one that this process does not use; the same when there is no other."""
        for number in self._free(place.tool, count, place.number + 1):
            self._used[place.tool].discard(place.number)
            self._used[place.tool].add(number)
            place.number = number
            return

    def _free(self, tool: str, count: int, begin: int | None = None) -> Iterator[int]:
        # The one used last is the likeliest to be free on the server, too.
        begin = self._last[tool] if begin is None else begin
        numbers = ((begin + step) % count for step in range(count))
        return (number for number in numbers if number not in self._used[tool])


class _Place:
    """One place in use."""

    def __init__(self, tool: str, number: int, slots: Slots) -> None:
        self.tool, self.number, self._slots = tool, number, slots

    @property
    def name(self) -> str:
        """As the server knows it."""
        return f"{self.tool}.{self.number}"

    def move(self, count: int) -> None:
        """Try another place."""
        self._slots.move(self, count)
