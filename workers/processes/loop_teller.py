"""How a worker whose event loop is held still tells its server: on a loop and a connection of the moment's own.

`workers.processes.watchdog` notices, from a thread beside the loop, and says it once a blockage. What is told is a
remark (`bus.held_loops`); no script waits for it, and where it cannot be told, this process's log has it all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import Final

import structlog

from bus.cluster import open_bus
from bus.connection import Endpoint
from bus.held_loops import HeldLoop, note_held_loop
from bus.types import BatchId, Plane, RunId
from workers.processes.watchdog import Tell
from workers.runtime import SystemRuntime

__all__ = ["teller"]

log = structlog.get_logger("evalbus.watchdog")

_PATIENCE: Final = 5.0
"""Seconds for all of it: as long as the watchdog waits for it where it ends the process."""


def teller(endpoint: Endpoint, plane: Plane) -> Tell:
    """What to tell by; it returns at once. `endpoint`: the process's, of which it takes where the server is."""

    async def told(batch: BatchId, run: RunId, held: HeldLoop) -> None:
        # Not the process's own: that one's locks and connections belong to the loop that is held.
        bus = open_bus(Endpoint(endpoint.target), SystemRuntime(), plane=plane, patience=_PATIENCE)
        try:
            async with asyncio.timeout(_PATIENCE):
                await note_held_loop(await bus.of(batch), batch, run, held)
        finally:
            await bus.aclose()

    def tell(batch: BatchId, run: RunId, held: HeldLoop) -> None:
        try:
            asyncio.run(told(batch, run, held))
        except Exception as error:  # a remark: whatever is in its way, nothing depends on it
            log.warning("loop.not_told", batch=batch, run=run, why=str(error) or type(error).__name__)

    def start(batch: BatchId, run: RunId, held: HeldLoop) -> threading.Thread | None:
        context = contextvars.copy_context()  # what is bound to every line of this process's log
        thread = threading.Thread(
            target=context.run, args=(tell, batch, run, held), name="evalbus-loop-teller", daemon=True
        )
        with contextlib.suppress(RuntimeError):  # no more threads: the watch must go on all the same
            thread.start()
            return thread
        return None

    return start
