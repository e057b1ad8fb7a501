"""How the plane of a run hears at once of what this very process did for it; of all else it hears by asking."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from bus.types import BatchId, RunId

__all__ = ["Bell", "Wakings"]


class Bell:
    """Rung when something of a run has changed. A ring that nobody waits for yet is not lost."""

    def __init__(self) -> None:
        """It has not rung."""
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Look again."""
        self._rung.set()

    async def wait(self, seconds: float) -> None:
        """Until it has rung since the last wait, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


class Wakings:
    """The bells of the runs that this process holds."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._bells: dict[tuple[BatchId, RunId], Bell] = {}

    def ring(self, batch: BatchId, run: RunId) -> None:
        """Something of that run has changed. Most runs are held elsewhere, and nobody is here to be told."""
        if (bell := self._bells.get((batch, run))) is not None:
            bell.ring()

    @contextlib.contextmanager
    def bell(self, batch: BatchId, run: RunId) -> Iterator[Bell]:
        """The bell of a run, for its holder."""
        bell = self._bells[batch, run] = Bell()
        try:
            yield bell
        finally:
            if self._bells.get((batch, run)) is bell:
                del self._bells[batch, run]
