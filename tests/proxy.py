"""A proxy between a client and a real server that loses what a test tells it to lose.

    async with proxy(server.address()) as between:
        between.lose(Loss.REPLY, calling("run.claim"))
        await link.run(…)                   # the first sending is applied, its answer never comes

A loss strikes the first request that holds the given bytes, and only that one: what is sent again passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from bus.wire import Address

__all__ = ["Loss", "Proxy", "proxy"]


class Loss(Enum):
    """What becomes of a request."""

    REQUEST = "the connection is cut before the request has reached the server"
    REPLY = "the connection is cut after the server has applied the request, before its reply has passed"
    SILENCE = "the server applies the request, and nothing passes this connection any more: half open"
    DELAY = "the request waits for `Proxy.resume`"


@dataclass(slots=True)
class Proxy:
    """See the module's text."""

    address: Address
    """Where clients connect."""
    struck: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the loss has happened."""
    resume: asyncio.Event = field(default_factory=asyncio.Event)
    requests: int = 0
    """How many requests held the bytes of the last `lose`."""
    _loss: Loss | None = None
    _needle: bytes = b""
    _clients: set[asyncio.StreamWriter] = field(default_factory=set)

    def lose(self, loss: Loss, needle: str | bytes) -> None:
        """Arm: strike the next request with `needle` in it."""
        self._loss, self._needle = loss, needle.encode() if isinstance(needle, str) else needle
        self.requests = 0
        self.struck.clear()
        self.resume.clear()

    def watch(self, needle: str | bytes) -> None:
        """Only count the requests with `needle` in them."""
        self.lose(Loss.DELAY, needle)
        self._loss = None

    def cut(self) -> None:
        """Cut every connection, now."""
        for writer in self._clients:
            writer.transport.abort()

    def strikes(self, request: bytes) -> Loss | None:
        """The loss that this request suffers."""
        if not self._needle or self._needle not in request:
            return None
        self.requests += 1
        loss, self._loss = self._loss, None
        return loss


@contextlib.asynccontextmanager
async def proxy(server: Address) -> AsyncIterator[Proxy]:
    """A proxy on a socket of its own before the server at `server.path`."""
    with tempfile.TemporaryDirectory(prefix="evb-") as folder:
        between = Proxy(Address(path=str(Path(folder) / "s")))
        tasks: list[asyncio.Task[None]] = []

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.append(asyncio.create_task(_carry(between, server, reader, writer)))

        listening = await asyncio.start_unix_server(accept, between.address.path)
        try:
            yield between
        finally:
            listening.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _carry(
    between: Proxy, server: Address, client: asyncio.StreamReader, to_client: asyncio.StreamWriter
) -> None:
    """One client's connection, until either side or a loss ends it."""
    between._clients.add(to_client)
    to_server: asyncio.StreamWriter | None = None
    back: asyncio.Task[None] | None = None
    try:
        from_server, to_server = await asyncio.open_unix_connection(server.path)
        deaf = asyncio.Event()
        back = asyncio.create_task(_replies(from_server, to_client, deaf))
        while request := await client.read(1 << 20):
            loss = between.strikes(request)
            if loss is Loss.REQUEST:
                between.struck.set()
                return
            if loss is Loss.DELAY:
                between.struck.set()
                await between.resume.wait()
            if loss in (Loss.REPLY, Loss.SILENCE):
                deaf.set()  # the reply is read, which is how we know that the request was applied, and not passed on
            to_server.write(request)
            if deaf.is_set():
                await back
                between.struck.set()
            if loss is Loss.REPLY:
                return
            if loss is Loss.SILENCE:
                await client.read()
    except OSError:
        pass  # no server there, or one side hung up: the other side is told by being hung up on
    finally:
        between._clients.discard(to_client)
        if back is not None:
            back.cancel()
        for writer in (to_client, to_server):
            if writer is not None:
                writer.transport.abort()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()


async def _replies(from_server: asyncio.StreamReader, to_client: asyncio.StreamWriter, deaf: asyncio.Event) -> None:
    """Pass replies on; with `deaf`, end at the first one."""
    while reply := await from_server.read(1 << 20):
        if deaf.is_set():
            return
        to_client.write(reply)
    to_client.transport.abort()
