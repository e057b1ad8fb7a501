"""The real clock, sleep and randomness of a process."""

from __future__ import annotations

import asyncio
import random
import secrets
import time

from bus import failpoints

__all__ = ["SystemRuntime"]


class SystemRuntime:
    """`bus.port.Runtime` of a real process."""

    def now(self) -> float:
        """Seconds on the monotonic clock."""
        return time.monotonic() + failpoints.jumped()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def token(self) -> str:
        """128 random bits as 32 hex digits."""
        return secrets.token_hex(16)

    def jitter(self) -> float:
        """A random number in [0, 1). Spreads polls; nothing secret hangs on it."""
        return random.random()  # noqa: S311
