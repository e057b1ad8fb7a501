"""What open batches have come to, asked from time to time for the metrics of a planner."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import structlog

from bus.cluster import ServerBus
from bus.errors import EvalbusError, InputError
from bus.port import Group
from bus.types import BatchId
from workers.observing.prometheus import Metrics
from workers.processes.rests import rests_of

__all__ = ["poll_batches"]

log = structlog.get_logger("evalbus.observing")

_EVERY: Final = 5.0
"""Seconds: a few reads a batch, and mostly shorter than the time between two scrapes."""
_LINGER: Final = 600.0
"""Seconds for which a batch that has ended is still told: its last numbers must be scraped."""


async def poll_batches(bus: ServerBus, metrics: Metrics, only: BatchId | None, every: float = _EVERY) -> None:
    """Tell of every open batch, or of one, until cancelled. A server that does not answer is asked again."""
    ended: dict[BatchId, float] = {}
    told: set[BatchId] = set()
    while True:
        try:
            metrics.resting(len(await rests_of(bus)))
            open_ones = {name for name in await bus.batches() if only in (None, name)}
            for name in open_ones | (told - ended.keys()):
                await _tell(bus, metrics, name)
            told |= open_ones
            for name in told - open_ones:
                ended.setdefault(name, time.monotonic())
            for name in [one for one, since in ended.items() if time.monotonic() - since > _LINGER]:
                metrics.forget(name)
                told.discard(name)
                del ended[name]
        except EvalbusError as error:
            log.info("metrics.not_told", why=str(error))
        await asyncio.sleep(every)


async def _tell(bus: ServerBus, metrics: Metrics, name: BatchId) -> None:
    try:
        info = await bus.info(name)
    except InputError:  # pruned meanwhile: those beside it, and its own end, are to be told of all the same
        info = None
    if info is None:
        return
    counts = await bus.counters(name)
    over = counts.status.ended
    waiting = {group.value: 0 if over else await bus.undelivered(name, group) for group in Group}
    budget = info.spec.limits.get("budget")
    metrics.batch(name, counts, budget if isinstance(budget, int) else None, waiting)
