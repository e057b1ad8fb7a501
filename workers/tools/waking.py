"""How the plane of a run hears at once of what this very process did for it; of all else it hears by asking."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from typing import Final

from bus.types import BatchId, RunId

__all__ = ["Bell", "Wakings"]

_SHORTEST: Final = 0.02
_LONGEST: Final = 0.2
"""Seconds before the first look at what others execute."""


class Bell:
    """Rung for each intent of a run that has ended. A ring that nobody waits for yet is not lost."""

    def __init__(self) -> None:
        """It has not rung."""
        self._rung: set[str] = set()
        self._missing: set[str] = set()
        self._all = asyncio.Event()

    def ring(self, intent: str) -> None:
        """That one may have ended."""
        self._rung.add(intent)
        self._missing.discard(intent)
        if not self._missing:
            self._all.set()

    async def wait(self, intents: Collection[str], seconds: float) -> None:
        """Until it has rung for each of them since the last wait, at most so long: one look, not one for each."""
        self._missing = set(intents) - self._rung
        if self._missing:
            self._all.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._all.wait()
        self._rung.clear()


class Wakings:
    """The bells of the runs that this process holds."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._bells: dict[tuple[BatchId, RunId], Bell] = {}
        self._usual = 0.0  # seconds that runs have waited lately

    def ring(self, batch: BatchId, run: RunId, intent: str) -> None:
        """That intent may have ended. Most runs are held elsewhere, and nobody is here to be told."""
        if (bell := self._bells.get((batch, run))) is not None:
            bell.ring(intent)

    def waited(self, seconds: float) -> None:
        """So long one run's intents took to end."""
        self._usual += (seconds - self._usual) / 8

    def first_look(self) -> float:
        """Seconds before a look at what others execute: half of what it usually takes, for most looks come too soon."""
        return min(max(self._usual / 2, _SHORTEST), _LONGEST)

    @contextlib.contextmanager
    def bell(self, batch: BatchId, run: RunId) -> Iterator[Bell]:
        """The bell of a run, for its holder."""
        bell = self._bells[batch, run] = Bell()
        try:
            yield bell
        finally:
            if self._bells.get((batch, run)) is bell:
                del self._bells[batch, run]
