"""Waiting for what must come: for a condition, never for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 45.0
"""Seconds. What takes so long has failed, also on a machine that does much else. It is less than the minute after which
much ends by itself: a wait that nothing but that minute ends has failed as well."""


async def until(condition: Callable[[], object], what: str) -> None:
    """Let the loop run until `condition` holds; fail, saying `what` did not come."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"waited in vain for {what}") from None


async def soon(awaitable: Awaitable[T]) -> T:
    """The result, within a test's patience."""
    return await asyncio.wait_for(asyncio.ensure_future(awaitable), PATIENCE)
