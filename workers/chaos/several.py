"""What sets of servers have in common: ports of their own, patience, and where each of them stands."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.info import parse_info
from workers.chaos.server import Process, ask

__all__ = ["free_ports", "replication", "until"]

_PATIENCE = 60.0  # seconds for what must come
_TAKEN: list[socket.socket] = []
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
    """Ports of loopback on which nobody listens, and which only a server is given while this process lives.

    On Linux each stays taken by a socket that never listens. A server, which says SO_REUSEADDR as well, may have it all
    the same; the near end of a connection may not, nor may whoever asks for any port: else it would be gone when a
    server that was killed comes back.
    """
    taken = [socket.socket() for _ in range(count)]
    for one in taken:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in taken]
    if sys.platform == "linux":
        _TAKEN.extend(taken)
    else:
        for one in taken:
            one.close()
    return ports
