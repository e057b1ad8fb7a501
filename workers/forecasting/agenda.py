"""Virtual time: what is to happen, each at its moment, and whoever does one thing after the other."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

__all__ = ["Agenda", "Line"]


class Agenda:
    """Times in seconds from the start. What falls on one moment happens in the order in which it was entered."""

    def __init__(self) -> None:
        """Nothing is to happen yet."""
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Have it called then."""
        heapq.heappush(self._events, (when, next(self._count), act))

    def step(self) -> bool:
        """Go on to what comes next; False when nothing does."""
        if not self._events:
            return False
        self.now, _, act = heapq.heappop(self._events)
        act()
        return True


class Line:
    """One thread of a server or a worker: what is asked of it waits until it has done what came before."""

    def __init__(self) -> None:
        """Free."""
        self.busy = 0.0
        """Seconds of work, done or promised."""
        self._free = 0.0

    def done(self, seconds: float, since: float) -> float:
        """When it has done work of so many seconds that is asked of it at `since`."""
        self._free = max(since, self._free) + seconds
        self.busy += seconds
        return self._free
