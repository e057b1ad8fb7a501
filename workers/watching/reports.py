"""The report of a batch that has ended, made once and kept as long as the server runs.

It is made from the whole history, which takes a while for a large batch: one is made at a time, and whoever asks second
gets what the first had made. Refusals that are recorded behind the close are in the next server's report.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.types import BatchId
from workers.results.fetching import existing

__all__ = ["Made", "Reports"]


@dataclass(frozen=True, slots=True)
class Made:
    """A report on disk, and the policy that it is sent with: it has a style and a script inside."""

    file: Path
    policy: str


class Reports:
    """See the module's text."""

    def __init__(self, bus: ServerBus, directory: Path, archive: Path | None = None) -> None:
        """`directory` is the caller's, and goes away with it. `archive`: as for `Watcher`."""
        self._bus, self._directory, self._archive = bus, directory, archive
        self._made: dict[tuple[str, ...], Made] = {}
        self._making = asyncio.Lock()

    async def of(self, batch: BatchId) -> Made:
        """Raises InputError for an unknown or open batch, ViolationError when its history is not true."""
        whole = await existing(self._bus, batch)
        if not whole.has_ended:
            raise InputError(f"batch {batch!r} is open: its report is made when it has ended")
        # A name may be used again, once its first batch was pruned.
        life = (batch, *(one.incarnation for one in whole.parts))
        async with self._making:
            if life not in self._made:
                self._made[life] = await self._make(batch, self._directory / str(len(self._made)))
            return self._made[life]

    async def _make(self, batch: BatchId, directory: Path) -> Made:
        # What writes a page takes a while to load, and most never ask for one.
        from workers.reporting.command import write_report  # noqa: PLC0415
        from workers.reporting.gather import fetched  # noqa: PLC0415
        from workers.reporting.web.assets import policy  # noqa: PLC0415

        file, source = directory / "report.html", directory / "source"
        source.mkdir(parents=True)
        try:
            history = await fetched(self._bus, batch, source, self._archive)
            await asyncio.to_thread(write_report, history, file)
        except BaseException:
            shutil.rmtree(directory)
            raise
        shutil.rmtree(source)
        return Made(file, f"{policy()}; frame-ancestors 'none'")
