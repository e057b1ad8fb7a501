"""The network between the processes and their server: it cuts, falls silent, is late, and delivers twice.

It carries bytes and knows of them only where one command ends and the next begins. A network that delivers twice does
not do so within a connection (TCP sees to that); it is a request of which somebody believes that it was lost. So the
second delivery comes over a connection of its own, and nobody hears its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Commands", "Proxy"]

_PIECE = 1 << 18
_DEAF = 5.0  # seconds that a repeated request's connection is kept


class Commands:
    """Where commands end, in bytes that come in pieces."""

    def __init__(self) -> None:
        """At the beginning of a connection."""
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The commands that are whole now, each in its bytes."""
        self._rest += data
        found = []
        while (end := _end_of_one(self._rest)) is not None:
            found.append(bytes(self._rest[:end]))
            del self._rest[:end]
        return found


def _end_of_one(data: bytearray) -> int | None:
    """Where the first command ends; None while it is not whole."""
    at = data.find(b"\r\n")
    if at < 0 or data[:1] != b"*":
        return None
    words, at = int(data[1:at]), at + 2
    for _ in range(words):
        line = data.find(b"\r\n", at)
        if line < 0:
            return None
        at = line + 2 + int(data[at + 1 : line]) + 2
        if at > len(data):
            return None
    return at


@dataclass(eq=False, slots=True)
class _Connection:
    to_client: asyncio.StreamWriter
    to_server: asyncio.StreamWriter
    silent: bool = False

    def abort(self) -> None:
        self.to_client.transport.abort()
        self.to_server.transport.abort()


@dataclass(slots=True)
class Proxy:
    """See the module's text. It listens at `path`, before the server's socket at `server`."""

    path: Path
    server: Path
    late: float = 0.0
    """Seconds by which each piece is late, in each direction."""
    to_repeat: int = 0
    """How many of the next scripts are delivered twice."""
    repeated: int = 0
    _connections: set[_Connection] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _listening: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._listening = await asyncio.start_unix_server(self._accept, str(self.path))

    async def stop(self) -> None:
        """Cut everything, listen no more."""
        if self._listening is not None:
            self._listening.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> int:
        """Cut all connections; returns how many there were."""
        count = len(self._connections)
        for connection in self._connections:
            connection.abort()
        return count

    def silence(self) -> int:
        """Nothing passes every second connection that there is now, in either direction, until `cut`."""
        silenced = list(self._connections)[::2]
        for connection in silenced:
            connection.silent = True
        return len(silenced)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):  # no server there, or the end: the client is told by the cut
            writer.transport.abort()
        finally:
            self._tasks.discard(task)

    async def _carry(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(str(self.server))
        connection = _Connection(to_client, to_server)
        self._connections.add(connection)
        back = asyncio.create_task(self._pass(connection, from_server, to_client, None))
        try:
            await self._pass(connection, from_client, to_server, Commands())
        finally:
            self._connections.discard(connection)
            back.cancel()
            connection.abort()
            await asyncio.gather(back, return_exceptions=True)

    async def _pass(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        commands: Commands | None,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE):
                if self.late:
                    await asyncio.sleep(self.late)
                if connection.silent:
                    continue  # it was sent, and arrives nowhere
                writer.write(data)
                for command in commands.feed(data) if commands is not None else ():
                    if self.to_repeat and b"EVALSHA" in command[:40]:
                        self.to_repeat -= 1
                        task = asyncio.create_task(self._deliver_again(command))
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
                await writer.drain()
        if not connection.silent:
            connection.abort()

    async def _deliver_again(self, command: bytes) -> None:
        try:
            from_server, to_server = await asyncio.open_unix_connection(str(self.server))
        except OSError:
            return
        try:
            to_server.write(command)
            self.repeated += 1
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(_DEAF):
                    await from_server.read(1)
        finally:
            to_server.transport.abort()
