"""One request and its answer, with what a server does not offer its applications: to cut the connection.

An ASGI application can only answer. Losing an answer needs the transport below it, and telling what the
client has not waited for needs somebody who listens while the answer is made: that is the watcher.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from starlette.types import Receive, Scope, Send

from workers.lab.counts import Counting
from workers.lab.mischief import Api

__all__ = ["TRANSPORT", "BodyTooLong", "Exchange", "Header"]

TRANSPORT: Final = "evalbus.lab.transport"
"""Where the server leaves the connection's transport in an ASGI scope."""

_LONGEST_BODY: Final = 32 * 2**20
"""Bytes; the lab keeps a request in memory."""

_FLUSH: Final = 1.0
"""Seconds in which what was written before a cut must have left; a client that does not read has it lost."""


class BodyTooLong(Exception):
    """The request's body is longer than the lab takes."""


@dataclass(frozen=True, slots=True)
class Header:
    """A header of an answer. The value is text of bytes (latin-1), as `Exchange.header` gives it."""

    name: str
    value: str


@dataclass(slots=True)
class Exchange:
    """Open it with `async with`. All its waits end when the client leaves or the lab stops."""

    api: Api
    scope: Scope
    receive: Receive
    send: Send
    counting: Counting
    stopping: asyncio.Event
    body: bytes = b""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """The client has closed the connection, or it was cut."""
    status: int | None = None
    ended: bool = False
    cause: str | None = None
    """Why it ended early."""
    told: dict[str, object] = field(default_factory=dict)
    """What the log says of it."""
    _watcher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Read the request; raises `BodyTooLong`."""
        chunks: list[bytes] = []
        size = 0
        more = True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                break
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > _LONGEST_BODY:
                raise BodyTooLong
            more = message.get("more_body", False)
        self.body = b"".join(chunks)
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Nobody leaves without an answer: what has none ends with the connection."""
        try:
            if not self.ended and self.cause is None:
                await self.lost()
        finally:
            if self._watcher is not None:
                self._watcher.cancel()

    async def _watch(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        if not self.ended:
            self.left.set()

    # --- the request ---

    @property
    def path(self) -> str:
        """Decoded."""
        return str(self.scope["path"])

    def header(self, name: str) -> str | None:
        """The first of that name; its bytes as latin-1, so that an echo is the same bytes."""
        wanted = name.lower().encode()
        for key, value in self.scope["headers"]:
            if key == wanted:
                return bytes(value).decode("latin-1")
        return None

    def text_header(self, name: str) -> str | None:
        """The same as text: UTF-8 where it is that."""
        value = self.header(name)
        if value is None:
            return None
        try:
            return value.encode("latin-1").decode()
        except UnicodeDecodeError:
            return value

    # --- waiting ---

    @property
    def is_open(self) -> bool:
        """Whether the client is there, as far as anybody can know."""
        transport = self.scope.get(TRANSPORT)
        return not self.left.is_set() and (transport is None or not transport.is_closing())

    async def pause(self, seconds: float, *, for_client: bool = True) -> bool:
        """Wait; False: the client has left meanwhile (where it is waited `for_client`), or the lab stops.

        A pause of nothing still lets the loop turn, so that a client that has left is noticed.
        """
        if seconds <= 0:
            await asyncio.sleep(0)
        else:
            await self._first(seconds, *((self.left,) if for_client else ()), self.stopping)
        return not self.stopping.is_set() and (not for_client or self.is_open)

    async def gone(self, seconds: float = math.inf) -> bool:
        """Wait until the client leaves, or so long; whether it has left."""
        await self._first(seconds, self.left, self.stopping)
        return self.left.is_set()

    async def _first(self, seconds: float, *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            await asyncio.wait(
                waits, timeout=None if math.isinf(seconds) else seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for wait in waits:
                wait.cancel()

    # --- the answer ---

    async def start(self, status: int, content_type: str, *headers: Header, length: int | None = None) -> None:
        """The answer's head. Without a length the body is chunked."""
        fields = [Header("content-type", content_type), *headers]
        if length is not None:
            fields.append(Header("content-length", str(length)))
        self.status = status
        self.counting.status(self.api, status)
        raw = [(name.name.lower().encode(), name.value.encode("latin-1")) for name in fields]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, chunk: bytes) -> bool:
        """A piece of the body; False: the client is gone, it was not written."""
        if not self.is_open:
            return False
        await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
        return self.is_open

    async def end(self, *, whole: bool = True) -> None:
        """The body's end; of an answer that is not `whole` it is not counted as answered."""
        if not self.is_open:
            return
        self.ended = True
        if whole:
            self.counting.answered(self.api)  # before its last byte: who has read it finds it counted
        await self.send({"type": "http.response.body", "body": b"", "more_body": False})

    async def answer(self, status: int, body: bytes, content_type: str, *headers: Header) -> bool:
        """A whole answer; False: the client had left."""
        if not self.is_open:
            return False
        await self.start(status, content_type, *headers, length=len(body))
        self.ended = True
        self.counting.answered(self.api)
        await self.send({"type": "http.response.body", "body": body, "more_body": False})
        return True

    async def json(self, status: int, content: object, *headers: Header) -> bool:
        """A whole answer in JSON."""
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return await self.answer(status, body, "application/json", *headers)

    async def lost(self) -> None:
        """There is nobody to answer: the client has left, or the lab stops."""
        await self.cut("lab" if self.stopping.is_set() else "client")

    async def cut(self, cause: str) -> None:
        """Close the connection in the middle; what was written before still arrives."""
        self.cause = cause
        self.counting.cut(self.api, cause)
        transport = self.scope.get(TRANSPORT)
        if transport is None:
            return
        transport.close()
        # The server must know of the end before the application returns, or it would answer 500 by itself.
        if not await self.gone(_FLUSH):
            transport.abort()
            await self.gone(_FLUSH)
