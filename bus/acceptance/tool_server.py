"""A tool with side effects, behind HTTP on a loopback port: what it really did is counted here, and nowhere else.

    async with ToolServer() as tool:
        answer = await call(tool.port, "book", {"subject": "s1"}, key="s1/call-0")     # 200, the key echoed
        tool.misbehave("s1", Fault.DROP_ANSWER)
    tool.made["s1"], tool.undone

It honours the `Idempotency-Key` header: the same key again gets the first answer and has no second effect; without a
key each request is an effect. A request with the `Undoes` header takes back what was done under the key that it quotes,
and that key is refused from then on, so that a slow original cannot land after its undo.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Self

__all__ = ["Answer", "Fault", "ToolServer", "call"]

_HOST = "127.0.0.1"
_END = b"\r\n\r\n"


class Fault(StrEnum):
    """What the tool does wrong with the next request about a subject."""

    DROP_ANSWER = "drop_answer"
    """The effect is made; the connection closes without a word."""
    NO_ECHO = "no_echo"
    """The effect is made and told; the answer lacks the key."""
    REFUSE = "refuse"
    """Nothing is done, and that is said."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    echo: str | None
    """The key as the tool sent it back."""
    text: str

    @property
    def ok(self) -> bool:
        """The tool says that the effect is there."""
        return self.status == HTTPStatus.OK


@dataclass(frozen=True, slots=True)
class _Message:
    """A request or an answer: its first line, its headers by lower-case name, its body."""

    first: str
    headers: Mapping[str, str]
    body: str

    def __bytes__(self) -> bytes:
        body = self.body.encode()
        headers = {**self.headers, "Content-Length": str(len(body)), "Connection": "close"}
        return "\r\n".join([self.first, *(f"{name}: {text}" for name, text in headers.items())]).encode() + _END + body


class ToolServer:
    """The tool, on a free port while the context is open. What it did can be read at any time, also afterwards."""

    def __init__(self) -> None:
        """It has done nothing yet."""
        self.made: Counter[str] = Counter()
        """Subject → effects that were made, whether they were undone or not."""
        self.standing: Counter[str] = Counter()
        """Subject → effects that were made and not undone."""
        self.undone: set[str] = set()
        """Keys whose undo came: nothing is done under them any more."""
        self._answers: dict[str, str] = {}
        self._faults: dict[str, Fault] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, _HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    @property
    def port(self) -> int:
        """Where it listens."""
        if self._server is None:
            raise RuntimeError("the tool is not listening: enter its context first")
        return int(self._server.sockets[0].getsockname()[1])

    def misbehave(self, subject: str, fault: Fault) -> None:
        """Once, with the next request about that subject that is no undo."""
        self._faults[subject] = fault

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request, one answer, or none."""
        with contextlib.closing(writer), _hung_up():
            request = await _read(reader)
            answer = self._answer(request)
            if answer is not None:
                writer.write(bytes(answer))
                await writer.drain()

    def _answer(self, request: _Message) -> _Message | None:
        subject = str(json.loads(request.body)["subject"])
        key, undoes = request.headers.get("idempotency-key"), request.headers.get("undoes")
        fault = self._faults.pop(subject, None) if undoes is None else None
        if key in self.undone:
            return _reply(HTTPStatus.CONFLICT, key, "undone before it came; nothing was done")
        if fault is Fault.REFUSE:
            return _reply(HTTPStatus.UNPROCESSABLE_ENTITY, key, "nothing was done")
        if undoes is not None:
            text = self._undo(subject, undoes)
        elif key is not None and key in self._answers:
            text = self._answers[key]
        else:
            text = self._do(subject, key)
        if fault is Fault.DROP_ANSWER:
            return None
        return _reply(HTTPStatus.OK, None if fault is Fault.NO_ECHO else key, text)

    def _do(self, subject: str, key: str | None) -> str:
        self.made[subject] += 1
        self.standing[subject] += 1
        text = f"effect {self.made[subject]} on {subject}"
        if key is not None:
            self._answers[key] = text
        return text

    def _undo(self, subject: str, key: str) -> str:
        if key in self._answers and key not in self.undone:
            self.standing[subject] -= 1
        self.undone.add(key)
        return f"{key} is undone"


async def call(
    port: int, tool: str, args: Mapping[str, object], *, key: str | None, undoes: str | None = None
) -> Answer | None:
    """One request. None: the connection ended without an answer, and the effect may be there or not."""
    headers = {"Host": f"{_HOST}:{port}", "Idempotency-Key": key, "Undoes": undoes}
    request = _Message(f"POST /{tool} HTTP/1.1", {n: text for n, text in headers.items() if text}, json.dumps(args))
    reader, writer = await asyncio.open_connection(_HOST, port)
    try:
        writer.write(bytes(request))
        answer = await _read(reader)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    finally:
        writer.close()
    return Answer(int(answer.first.split()[1]), answer.headers.get("idempotency-key"), answer.body)


async def _read(reader: asyncio.StreamReader) -> _Message:
    head = (await reader.readuntil(_END)).removesuffix(_END).decode()
    first, *lines = head.split("\r\n")
    headers = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return _Message(first, headers, body.decode())


def _reply(status: HTTPStatus, key: str | None, text: str) -> _Message:
    return _Message(f"HTTP/1.1 {status.value} {status.phrase}", {"Idempotency-Key": key} if key else {}, text)


@contextlib.contextmanager
def _hung_up() -> Iterator[None]:
    """Whoever hangs up before its request is whole has asked for nothing."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        yield
