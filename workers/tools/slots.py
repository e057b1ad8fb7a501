"""The places of a tool, as far as this process uses them.

The server grants a place, over the whole fleet; here it is only kept track of those that this process has, or is about
to ask for, so that it does not ask for one twice: each refusal is a line in the batch's history.

A tool may have thousands. So a call looks at a few first, from the one behind its predecessor's on, and at all of them
when those are taken. Each process begins at another place, drawn anew when somebody else was faster there. Calls that
look at the same moment share one look.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Final

from bus.port import Bus
from bus.types import BatchId

__all__ = ["Looks", "Slot", "Slots"]

_FEW: Final = 4
"""Places that a call looks at first."""


class Slots:
    """Places `<tool>.<k>`, k from 0."""

    def __init__(self, jitter: Callable[[], float]) -> None:
        """None is used. `jitter`: numbers from 0 to 1, by which processes that look at once choose differently."""
        self._jitter, self._at = jitter, jitter()  # of all places, the part that comes before the next one to look at
        self._used: dict[tuple[str, str], int] = defaultdict(int)
        self._chosen: dict[tuple[str, str], set[str]] = defaultdict(set)
        self._waiting: list[asyncio.Future[None]] = []

    @contextlib.asynccontextmanager
    async def one(self, tool: str, count: int, batch: str = "") -> AsyncIterator[Slot]:
        """One of a tool's places, not chosen yet: it waits until this process uses fewer. `count`: of the fleet.

        `batch`: where the places are its own.
        """
        slot = Slot(tool, count, self, batch)
        while self._used[slot.whose] >= count:
            freed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(freed)
            await freed
        self._used[slot.whose] += 1
        try:
            yield slot
        finally:
            self._used[slot.whose] -= 1
            self._leave(slot)
            if not self._used[slot.whose]:  # its batch may be over
                del self._used[slot.whose]
                self._chosen.pop(slot.whose, None)
            self._tell()

    def _tell(self) -> None:
        """To all who wait: one place is free, and nobody knows whose turn it is."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)

    def few(self, slot: Slot) -> Sequence[str]:
        """Some that no other call here has chosen, as far as there are any."""
        if slot.count <= 2 * _FEW:
            return slot.names
        self._leave(slot)
        chosen, first = self._chosen[slot.whose], round(self._at * slot.count)
        found: list[str] = []
        self._at = (self._at + 1 / slot.count) % 1
        for number in range(first, first + slot.count):
            name = slot.named(number % slot.count)
            if name not in chosen:
                found.append(name)
                if len(found) == _FEW:
                    break
        return found

    def move(self) -> None:
        """Look elsewhere from now on."""
        self._at = self._jitter()

    def choice(self, slot: Slot, names: Sequence[str], free: Collection[str]) -> str | None:
        """One of the names that is free and that no other call here has chosen."""
        self._leave(slot)
        chosen = self._chosen[slot.whose]
        left = [name for name in names if name in free and name not in chosen]
        if not left:
            return None
        # Nobody else begins where this process does: the first of a few is as good as any.
        choice = left[0 if len(names) < slot.count else int(self._jitter() * len(left)) % len(left)]
        chosen.add(choice)
        return choice

    def _leave(self, slot: Slot) -> None:
        if slot.name is not None:
            self._chosen[slot.whose].discard(slot.name)
            slot.name = None


class Slot:
    """One place in use."""

    def __init__(self, tool: str, count: int, slots: Slots, batch: str = "") -> None:
        """`count`: of the tool's places."""
        self.tool, self.count, self._slots = tool, count, slots
        self.whose = (batch, tool)
        self.name: str | None = None
        """The one that was chosen."""

    @property
    def names(self) -> list[str]:
        """All of the tool's, as the server knows them."""
        return [self.named(number) for number in range(self.count)]

    def named(self, number: int) -> str:
        """The tool's place of that number."""
        return f"{self.tool}.{number}"

    def few(self) -> Sequence[str]:
        """Some of them, to look at first."""
        return self._slots.few(self)

    def lose(self) -> None:
        """Another process has asked for it first."""
        self._slots.move()

    def choose(self, names: Sequence[str], free: Collection[str]) -> bool:
        """Choose one of the names, of those that are free; False when there is none."""
        self.name = self._slots.choice(self, names, free)
        return self.name is not None


class Looks:
    """Looks at the places of the fleet: what the event loop's present round asks for is one look."""

    def __init__(self, bus: Bus) -> None:
        """`bus`: has the batches."""
        self._bus = bus
        self._next: dict[BatchId, tuple[dict[str, None], asyncio.Task[frozenset[str]]]] = {}

    async def free(self, batch: BatchId, names: Sequence[str]) -> frozenset[str]:
        """Those of the names that no call has, among others. Raises EvalbusError."""
        if batch not in self._next:
            self._next[batch] = {}, asyncio.create_task(self._look(batch))
        asked, look = self._next[batch]
        asked.update(dict.fromkeys(names))
        return await asyncio.shield(look)

    async def _look(self, batch: BatchId) -> frozenset[str]:
        asked, _ = self._next.pop(batch)
        return frozenset(await self._bus.free_slots(batch, list(asked)))
