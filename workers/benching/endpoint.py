"""A model endpoint that costs next to nothing: every request is answered with the same stream of 64 chunks.

    python -m workers.benching.endpoint     the first line is the port; it serves until its standard input ends

It must not be what is measured. So it has one core of its own if there is one, speaks HTTP by hand, parses no JSON and
makes nothing: the answer was packed when it started, and leaves in eight packets of eight chunks, between which other
requests get their turn. What it takes of the processors stands beside the figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys

__all__ = ["CHUNKS", "ModelProcess"]

CHUNKS = 64
_PACKET = 8  # chunks
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_STARTING = 20.0  # seconds


def _packets() -> list[bytes]:
    """The answer in the form of OpenAI's chat completions, usage at its end, in pieces of HTTP."""

    def event(fields: dict[str, object]) -> bytes:
        same = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 0, "model": "bench"}
        data = b"data: " + json.dumps(same | fields).encode() + b"\n\n"
        return b"%x\r\n%s\r\n" % (len(data), data)

    def said(delta: dict[str, str], reason: str | None = None) -> bytes:
        return event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    chunks = [said({"content": f"w{number:02d} "}) for number in range(CHUNKS)]
    usage = {"prompt_tokens": 8, "completion_tokens": CHUNKS, "total_tokens": CHUNKS + 8}
    done = b"data: [DONE]\n\n"
    last = said({}, "stop") + event({"choices": [], "usage": usage}) + b"%x\r\n%s\r\n0\r\n\r\n" % (len(done), done)
    packets = [b"".join(chunks[at : at + _PACKET]) for at in range(0, CHUNKS, _PACKET)]
    return [_HEAD + packets[0], *packets[1:-1], packets[-1] + last]


class _Serving(asyncio.Protocol):
    """One connection, kept open: requests one after another."""

    def __init__(self, packets: list[bytes], loop: asyncio.AbstractEventLoop) -> None:
        self._packets, self._loop = packets, loop
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = self._received[:end].lower()
            _, _, length = head.partition(b"content-length:")
            whole = end + 4 + (int(length.split(b"\r\n")[0]) if length else 0)
            if len(self._received) < whole:
                return
            self._received = self._received[whole:]
            self._send(0)

    def _send(self, number: int) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(self._packets[number])
        if number + 1 < len(self._packets):
            self._loop.call_soon(self._send, number + 1)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    packets = _packets()
    server = await loop.create_server(lambda: _Serving(packets, loop), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


class ModelProcess:
    """The endpoint as a process. `await ModelProcess.start()`, `url`, `pid`, `await stop()`."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        """Use `start`."""
        self._process = process
        self.url = f"http://127.0.0.1:{port}/v1"

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @classmethod
    async def start(cls) -> ModelProcess:
        """Up when this returns. Raises TimeoutError, ValueError."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "workers.benching.endpoint",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(_STARTING):
            return cls(process, int(await process.stdout.readline()))

    async def stop(self) -> None:
        """It ends when nobody holds its input any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(5.0):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
