"""What a role has made for the suites that it serves, and lets go with the last batch of each.

A pool without a suite of its own meets another state of it at each commit. What it made for one may have something
open (an endpoint's connections, a server of tools, an eval), and to close that may take time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final, Protocol, runtime_checkable

import structlog

from bus.types import Digest

__all__ = ["Closable", "close", "close_all", "ended", "forget_all_but"]

log = structlog.get_logger("evalbus.closing")

_FAREWELL: Final = 8.0
"""Seconds for what a process that stops has open: less than a fleet gives it before it is killed."""


@runtime_checkable
class Closable(Protocol):
    """What has something open."""

    async def aclose(self) -> None:
        """Close it."""


def forget_all_but(made: dict[Digest, Any], suites: Collection[Digest]) -> list[Closable]:
    """Drop what was made for other suites. Returns what of it has something open."""
    dropped = [made.pop(digest) for digest in made.keys() - set(suites)]
    return [one for one in dropped if isinstance(one, Closable)]


async def close(one: Closable) -> None:
    """Close something of a suite that is over: what goes wrong with that ends nobody."""
    try:
        await one.aclose()
    except Exception:
        log.exception("close.broke", of=type(one).__name__)


async def close_all(ones: Iterable[Closable]) -> None:
    """Close what a process that stops has open, all at once; what takes too long ends with the process."""
    await ended({asyncio.create_task(close(one)) for one in ones})


async def ended(closing: Collection[asyncio.Task[None]]) -> None:
    """Wait for what is being closed, as `close_all` does."""
    if not closing:
        return
    _, late = await asyncio.wait(closing, timeout=_FAREWELL)
    for one in late:
        log.warning("close.hangs")
        one.cancel()
