"""An endpoint that says byte for byte what its test wants, when it wants: packets, cuts, silences, and worse.

    async with serving(answer) as server:        # async def answer(to: Exchange) -> None
        server.url, server.seen, server.left

It speaks HTTP by hand. A framework would finish a response that is to be cut, and mend one that is to be wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Answer", "Exchange", "Seen", "SseServer", "events", "serving"]

Answer = Callable[["Exchange"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it came in."""

    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @property
    def fields(self) -> dict[str, object]:
        return json.loads(self.body)  # type: ignore[no-any-return]


@dataclass(slots=True)
class Exchange:
    """One request, to be answered."""

    request: Seen
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self, status: int = 200, kind: str = "text/event-stream", **headers: str) -> None:
        """The response's head; what follows is chunked unless a length is named."""
        fields = {"content-type": kind} if kind else {}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        if "content-length" not in fields:
            fields["transfer-encoding"] = "chunked"
        lines = [f"HTTP/1.1 {status} Said", *(f"{name}: {value}" for name, value in fields.items())]
        await self.raw("\r\n".join([*lines, "", ""]).encode())

    async def raw(self, data: bytes) -> None:
        """One packet, as it is."""
        self.writer.write(data)
        await self.writer.drain()
        await asyncio.sleep(0)

    async def say(self, *packets: str | bytes) -> None:
        """Parts of the body, each a chunk and a packet of its own."""
        for packet in packets:
            data = packet.encode() if isinstance(packet, str) else packet
            await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        """The end of the body, in good order."""
        await self.raw(b"0\r\n\r\n")

    async def stream(self, *packets: str | bytes) -> None:
        """A whole response."""
        await self.head()
        await self.say(*packets)
        await self.end()

    def cut(self) -> None:
        """The connection ends in the middle."""
        self.writer.transport.abort()

    async def until_left(self) -> None:
        """Say nothing more until the client has gone."""
        with contextlib.suppress(ConnectionError):
            await self.reader.read()


@dataclass(slots=True)
class SseServer:
    """A running one. `left` is set when a client has closed its connection, `connections` counts them."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0


@asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[SseServer]:
    """Serve on loopback; connections are kept open and used again. With `tls` its URL names `localhost`."""
    state = SseServer()
    failed: list[BaseException] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        try:
            while (request := await _request(reader)) is not None:
                state.seen.append(request)
                await answer(Exchange(request, reader, writer))
        except ConnectionError:
            pass  # what the test is about
        except BaseException as error:  # told where it is looked at: at the end of the test
            failed.append(error)
        finally:
            state.left.set()
            writer.transport.abort()

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    state.url = f"http://127.0.0.1:{port}/v1" if tls is None else f"https://localhost:{port}/v1"
    try:
        yield state
    finally:
        listening.close()
    for error in failed:
        raise error


async def _request(reader: asyncio.StreamReader) -> Seen | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    return Seen(head[0], headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def events(*datas: object, end: str = "\n") -> str:
    """Each as one event: what is no text as JSON."""
    texts = [data if isinstance(data, str) else json.dumps(data, ensure_ascii=False) for data in datas]
    return "".join(f"data: {text}{end}{end}" for text in texts)
