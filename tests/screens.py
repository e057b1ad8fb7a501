"""What a terminal shows: text that a command has printed, and the screens of `top`, through Textual's pilot."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from bus.target import Target
from tests.batches import Batch
from tests.waiting import PATIENCE
from workers.watching.looking import Watcher
from workers.watching.top import Top


def console() -> Console:
    """One whose text can be read."""
    return Console(file=io.StringIO(), width=60)


def text_of(screen: Console) -> str:
    """What was printed."""
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


@dataclass(slots=True)
class Seat:
    """Somebody in front of the screen."""

    app: Top
    pilot: Pilot[None]
    batch: Batch

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Let the application go on until it is so."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}; on the screen:\n{self.text}"
            await self.pilot.pause(0.01)

    async def sees(self, words: str) -> None:
        """Wait until these words are on the screen."""
        await self.until(lambda: words in self.text, repr(words))

    @property
    def text(self) -> str:
        """All that the screen says, seen or scrolled away."""
        lines = []
        for widget in self.app.screen.query("*"):
            if not widget.display:
                continue
            if isinstance(widget, Static):
                lines.append(str(widget.render()))
            elif isinstance(widget, DataTable):
                rows = [widget.get_row_at(number) for number in range(widget.row_count)]
                lines += ["  ".join(cell.plain for cell in row if isinstance(cell, Text)) for row in rows]
        return "\n".join(lines)


@contextlib.asynccontextmanager
async def seated(
    server: Target,
    *,
    runs: int = 3,
    width: int = 120,
    begin_with_it: bool = False,
    admitted: bool = True,
    archive: Path | None = None,
    **spec: object,
) -> AsyncIterator[Seat]:
    """In front of a screen, with one batch `b` on the server."""
    batch = await Batch.open(server.address(), runs=runs, **spec)  # type: ignore[arg-type]
    try:
        if admitted:
            await batch.admit()
        watcher = Watcher(batch.bus, archive)
        app = Top(watcher, batch=batch.name if begin_with_it else None, server="redis://there")
        async with app.run_test(size=(width, 40)) as pilot:
            yield Seat(app, pilot, batch)
    finally:
        await batch.aclose()
