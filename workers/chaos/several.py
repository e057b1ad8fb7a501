"""What sets of servers have in common: ports of their own, patience, and where each of them stands."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.info import parse_info
from workers.chaos.server import Process, ask

__all__ = ["free_ports", "replication", "until"]

_PATIENCE = 60.0  # seconds for what must come
_AWAY = (ReplyError, ServerUnfit, ServerUnreachable)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for it; a server that does not answer makes it untrue. Raises ServerUnreachable when it does not come."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            if await condition():
                return
        except _AWAY:
            pass
        if time.monotonic() > deadline:
            raise ServerUnreachable(f"waited {_PATIENCE:.0f} s in vain for {what}")
        await asyncio.sleep(0.05)


async def replication(one: Process) -> Mapping[str, str]:
    """What it says of the server that it follows, or of those that follow it. Raises as `ask`."""
    return parse_info(await ask(one.target, "INFO", "replication"))


def free_ports(count: int) -> list[int]:
    """Ports of loopback on which nobody listens now."""
    taken = [socket.socket() for _ in range(count)]
    try:
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in taken]
    finally:
        for one in taken:
            one.close()
