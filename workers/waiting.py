"""Waiting for something, unless a stop comes first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias

__all__ = ["Opened", "pause", "unless"]

Opened: TypeAlias = Callable[[float], Awaitable[None]]
"""Waits, at most so many seconds, until there may be a batch to serve."""


async def unless(stopping: asyncio.Event, waiting: Awaitable[None]) -> None:
    """Wait for something that nothing is lost by leaving, unless a stop comes first."""
    tasks = [asyncio.ensure_future(waiting), asyncio.ensure_future(stopping.wait())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Wait so long."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)
