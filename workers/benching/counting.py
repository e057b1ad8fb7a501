"""How many commands a run's processes send, by MONITOR: the server's own counts cannot tell them from a script's.

MONITOR slows a server down, so it is on for a small batch that is not timed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from bus.target import Target

__all__ = ["Sent", "monitored"]

_SETTLING = 0.2  # seconds: what the server had to say when the batch ended


@dataclass(slots=True)
class Sent:
    """What came by: from clients, and inside scripts."""

    by_clients: int = 0
    inside: int = 0

    def feed(self, line: bytes) -> None:
        """One line of MONITOR: `+1700000000.000000 [0 lua] "HGET" …`. INFO and the like are whoever measures."""
        head, mark, said = line.partition(b'] "')
        if not mark:
            return
        if head.endswith(b" lua"):
            self.inside += 1
        elif not said[:8].upper().startswith((b'INFO"', b'MONITOR"')):
            self.by_clients += 1


@contextlib.asynccontextmanager
async def monitored(target: Target) -> AsyncIterator[Sent]:
    """Count until the block ends."""
    if target.path is not None:
        reader, writer = await asyncio.open_unix_connection(target.path, limit=2**26)
    else:
        reader, writer = await asyncio.open_connection(target.host, target.port, limit=2**26)
    writer.write(b"MONITOR\r\n")
    await reader.readline()
    sent = Sent()
    reading = asyncio.create_task(_read(reader, sent))
    try:
        yield sent
        await asyncio.sleep(_SETTLING)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        writer.close()


async def _read(reader: asyncio.StreamReader, sent: Sent) -> None:
    while line := await reader.readline():
        sent.feed(line)
