"""A server that says what a test tells it to: for what no real server can be brought to say on demand."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import hiredis

from bus.wire import Address

__all__ = ["Peer", "echo", "peer"]


@dataclass(slots=True)
class Peer:
    """A server that says what a test tells it to."""

    address: Address
    heard: list[list[bytes]] = field(default_factory=list)
    """The commands so far, the greeting not among them."""
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: what it hears it keeps, and answers when it is set."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has gone."""


Answer = Callable[[list[bytes]], bytes | None]


def echo(command: list[bytes]) -> bytes:
    """Each command is answered by its last word."""
    return b"$%d\r\n%s\r\n" % (len(command[-1]), command[-1])


@contextlib.asynccontextmanager
async def peer(
    answer: Answer = echo, *, greets: bytes | None = b"+OK\r\n", says_first: bytes = b""
) -> AsyncIterator[Peer]:
    """`answer` gives the reply to a command, b"" for none, None to hang up. `greets` answers AUTH and CLIENT."""
    with tempfile.TemporaryDirectory(prefix="evb-") as folder:
        one = Peer(Address(path=str(Path(folder) / "s")))
        one.may_answer.set()

        clients: list[asyncio.Task[None]] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            commands = hiredis.Reader()
            writer.write(says_first)
            try:
                while data := await reader.read(65536):
                    commands.feed(data)
                    while (command := commands.gets()) is not False:
                        assert isinstance(command, list)
                        await _reply(one, command, writer, greets, answer)
            finally:
                one.left.set()
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            clients.append(asyncio.create_task(serve(reader, writer)))

        server = await asyncio.start_unix_server(accept, one.address.path)
        try:
            yield one
        finally:
            server.close()
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)


async def _reply(
    one: Peer, command: list[bytes], writer: asyncio.StreamWriter, greets: bytes | None, answer: Answer
) -> None:
    if command[0] in (b"AUTH", b"CLIENT"):
        reply = greets
    else:
        one.heard.append(command)
        await one.may_answer.wait()
        reply = answer(command)
    if reply is None:
        writer.close()
    else:
        writer.write(reply)
