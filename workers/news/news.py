"""All that is new about a batch that runs: asked of each source in turn, no more often than its answer is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from bus.cluster import ServerBus
from bus.port import Counters
from workers.news.endpoints import EndpointNews
from workers.news.held_loops import HeldLoopNews
from workers.news.holes import FirstHoles
from workers.news.rests import RestNews
from workers.results.whole import Whole

__all__ = ["News", "Source", "sources_of"]


class Source(Protocol):
    """What knows of one kind of news, and what of it was told."""

    every: float
    """Seconds between two looks, at least."""

    async def news(self, counters: Counters, /) -> list[str]:
        """A line for each thing that is new. `counters`: the batch's now."""


def sources_of(bus: ServerBus, whole: Whole, logs: Path) -> list[Source]:
    """Those of a batch; what stands in `logs` already is no news. The likeliest reason for a standstill comes first."""
    return [HeldLoopNews(bus, whole.batches), FirstHoles(bus, whole), EndpointNews(logs), RestNews(bus)]


class News:
    """See the module's text."""

    def __init__(self, sources: Sequence[Source], clock: Callable[[], float]) -> None:
        """`clock`: seconds."""
        self._clock = clock
        self._next = [(source, float("-inf")) for source in sources]

    async def lines(self, counters: Counters) -> list[str]:
        """What is new, as far as it was time to look."""
        found: list[str] = []
        for at, (source, due) in enumerate(self._next):
            now = self._clock()
            if now >= due:
                self._next[at] = source, now + source.every
                found += await source.news(counters)
        return found
