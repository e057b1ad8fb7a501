"""One connection that many coroutines share: calls made at once leave as one write.

A script costs the server some twenty microseconds; a round trip costs ten times that. So calls are not awaited one by
one: each is packed into a buffer, the buffer leaves when it holds a few, or when the event loop comes round, and the
replies, which the server gives in order, are handed out in order. Nothing else is shared: an error reply belongs to the
one call that it answers, and a waiter that is cancelled leaves its place in the queue behind, so that its neighbours'
replies still match.

Nothing is ever sent twice from here. A lost connection fails every waiter with `ServerUnreachable`, which means
*unknown outcome*; who called sends the same command again, under the same identity.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import hiredis

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.texts import AS_PRESENTED

__all__ = ["SILENCE", "Address", "Reply", "Wire"]

Reply = Any
"""What the server said, in RESP2 shapes: bytes, int, None, or a list of these."""

_CONNECT_TIMEOUT = 5.0  # seconds; a server that does not take a connection by then is not there
_AT_ONCE = 16
"""Commands in one write, at most: the server works on them while we pack those that come after."""
_READ_AT_ONCE = 64 * 1024
"""Bytes; they are read into the same place each time, which costs less than a new one."""
SILENCE = 15.0
"""Seconds without a byte while replies are due: the connection is half open, or the server stopped."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and how to greet it. Exactly one of `path` and `host` is set."""

    host: str | None = None
    port: int = 6379
    path: str | None = None
    username: str | None = None
    password: str | None = None
    db: int = 0
    tls: ssl.SSLContext | None = None
    client_name: str = "evalbus"


class _Due(NamedTuple):
    """Replies that somebody waits for: one, or a list of `several`. `text`: its bytes are UTF-8, and given as str."""

    waiter: asyncio.Future[Reply]
    several: int
    text: bool


class _Waiting(asyncio.BufferedProtocol):
    """The reading half: replies to futures, first in, first out."""

    def __init__(self) -> None:
        # Half of a surrogate pair may be in a text, see `_packed`; and what other clients presented may be no text. One
        # call's reply answers a crowd.
        self.reader = hiredis.Reader(
            replyError=ReplyError, protocolError=ReplyError, encoding="utf-8", errors=AS_PRESENTED
        )
        self.due: deque[_Due] = deque()
        self.heard = True
        self.lost: ServerUnreachable | None = None
        self.transport: asyncio.Transport | None = None
        # A view: TLS reads each record into a slice behind the last, and a slice of the bytes themselves is a copy.
        self._bytes = memoryview(bytearray(_READ_AT_ONCE))
        self._gathered: list[Reply] = []  # of the first that are due, when these are several

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._bytes

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = True
        self.reader.feed(cast(bytes, self._bytes), 0, nbytes)  # it reads any buffer; its types name bytes
        due = self.due
        while True:
            first = due[0] if due else None
            try:
                reply = self.reader.gets(first is not None and first.text)
            except ReplyError as error:  # not a reply at all: the stream is out of step, nothing after it counts
                self.fail(ServerUnreachable(f"the server's answer cannot be read: {error}"))
                return
            if reply is False:
                return
            if first is None:  # it speaks unasked only to turn a client away; nothing after it would be in step
                self.fail(ServerUnreachable(f"the server said, without being asked: {reply}"))
                return
            waiter, several, _ = first
            if several:
                self._gathered.append(reply)
                if len(self._gathered) < several:
                    continue
                reply, self._gathered = self._gathered, []
            due.popleft()
            if waiter.done():  # cancelled meanwhile; its reply is dropped, the order is kept
                continue
            if isinstance(reply, Exception):
                waiter.set_exception(reply)
            else:
                waiter.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(ServerUnreachable(f"the connection to the server was lost{f': {exc}' if exc else ''}"))

    def fail(self, error: ServerUnreachable) -> None:
        self.lost = self.lost or error
        if self.transport is not None:
            self.transport.abort()
        while self.due:
            waiter = self.due.popleft().waiter
            if not waiter.done():
                waiter.set_exception(ServerUnreachable(str(error)))


# Its stub names one type of item only.
_pack: Callable[[tuple[str | bytes | int, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


def _packed(command: Sequence[str | bytes | int]) -> bytes:
    try:
        return _pack(tuple(command))
    except UnicodeEncodeError:
        # Half of a surrogate pair: no text stops a call from being sent, nor its refusal from being recorded.
        whole = [part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in command]
        return _pack(tuple(whole))


class Wire:
    """See the module's text. `await Wire.open(address)`, then `await wire.call("GET", key)`."""

    def __init__(self, transport: asyncio.Transport, waiting: _Waiting, silence: float) -> None:
        """Use `open`."""
        self._transport = transport
        self._waiting = waiting
        self._loop = asyncio.get_running_loop()
        self._buffer: list[bytes] = []
        self.server = ""
        """The run id of the server at the other end, once somebody has asked; another one after each restart."""
        self.loads: Counter[str] = Counter()
        """How often each script's text was sent on this connection; see `bus.calling`."""
        self.client_id: int | None = None
        """What the server calls this connection; None until it has said so, and where its user may not ask."""
        self._silence = silence
        self._watch = self._loop.call_later(silence, self._look_for_silence)
        _wires.add(self)

    @classmethod
    async def open(cls, address: Address, *, silence: float = SILENCE) -> Wire:
        """Connect and greet. Raises ServerUnreachable, or ServerUnfit when the server refuses the credentials.

        `silence`: seconds without a byte while replies are due, after which the connection counts as lost.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                if address.path is not None:
                    transport, waiting = await loop.create_unix_connection(_Waiting, address.path)
                else:
                    transport, waiting = await loop.create_connection(
                        _Waiting, address.host or "localhost", address.port, ssl=address.tls
                    )
                    sock = transport.get_extra_info("socket")
                    if sock is not None:
                        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, TimeoutError) as error:
            where = address.path or f"{address.host}:{address.port}"
            raise ServerUnreachable(f"no server at {where}: {error or 'timed out'}") from error
        wire = cls(transport, waiting, silence)
        try:
            await wire._greet(address)
        except ReplyError as error:
            wire.close()
            if error.code == "LOADING" or "max number of clients" in str(error):
                raise ServerUnreachable(str(error)) from error
            raise ServerUnfit(f"the server refused the connection: {error}") from error
        except BaseException:
            wire.close()
            raise
        return wire

    async def _greet(self, address: Address) -> None:
        if address.password is not None:
            user = [address.username] if address.username else []
            await self.call("AUTH", *user, address.password)
        if address.db:
            await self.call("SELECT", address.db)
        await self.call("CLIENT", "SETNAME", address.client_name)

    def ask_for_id(self) -> None:
        """Have `client_id` filled in, some time; needed by whoever wants to end a read that waits here."""
        self.call("CLIENT", "ID").add_done_callback(self._take_id)

    def _take_id(self, answer: asyncio.Future[Reply]) -> None:
        if not answer.cancelled() and answer.exception() is None and isinstance(answer.result(), int):
            self.client_id = answer.result()

    @property
    def lost(self) -> bool:
        """True once the connection is gone; a Wire does not come back."""
        return self._waiting.lost is not None or self._transport.is_closing()

    def call(self, *command: str | bytes | int, text: bool = False) -> asyncio.Future[Reply]:
        """Queue one command. The future's result is its reply; its exception a ReplyError or ServerUnreachable.

        `text`: the bytes in the reply are UTF-8, and come as str; what is none as `bus.texts` has it.
        """
        return self._queue((command,), 0, text)

    def calls(
        self, commands: Sequence[Sequence[str | bytes | int]], *, text: bool = False
    ) -> asyncio.Future[list[Reply | ReplyError]]:
        """Queue many commands, in one write; error replies are returned in place, not raised."""
        return self._queue(commands, len(commands), text)

    def _queue(
        self, commands: Sequence[Sequence[str | bytes | int]], several: int, text: bool
    ) -> asyncio.Future[Reply]:
        waiter: asyncio.Future[Reply] = self._loop.create_future()
        if self._waiting.lost is not None:
            waiter.set_exception(ServerUnreachable(str(self._waiting.lost)))
            return waiter
        if not commands:
            waiter.set_result([])
            return waiter
        packed = [_packed(command) for command in commands]  # all or, where one cannot be packed, none
        if not self._buffer:
            self._loop.call_soon(self._flush)
        self._buffer += packed
        self._waiting.due.append(_Due(waiter, several, text))
        if len(self._buffer) >= _AT_ONCE:
            self._flush()
        return waiter

    def _flush(self) -> None:
        data, self._buffer = b"".join(self._buffer), []
        if data and self._waiting.lost is None:
            self._transport.write(data)

    def hurry(self, silence: float) -> None:
        """From now on, so many seconds without a byte are too many."""
        self._silence = silence
        self._waiting.heard = not self._waiting.due
        self._watch.cancel()
        if not self.lost:
            self._watch = self._loop.call_later(silence, self._look_for_silence)

    def _look_for_silence(self) -> None:
        if self._waiting.lost is not None:
            return
        if self._waiting.due and not self._waiting.heard:
            self._waiting.fail(ServerUnreachable(f"no answer from the server for {self._silence:g} s"))
            return
        self._waiting.heard = not self._waiting.due
        self._watch = self._loop.call_later(self._silence, self._look_for_silence)

    def close(self) -> None:
        """Close at once; whatever was in flight has an unknown outcome."""
        self._watch.cancel()
        self._waiting.fail(ServerUnreachable("the connection was closed"))

    def leave_to_parent(self) -> None:
        """In a process that was forked off: let go of the connection, without a word to the server.

        Its number leads nowhere from now on, rather than to whatever is opened next. Should the child go on with its
        copy of the event loop, it would act as its parent: it ends instead.
        """
        sock = self._transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, sock.fileno(), inheritable=False)
            os.close(nowhere)
        if not self._loop.is_closed():
            self._loop.call_soon(os._exit, 0)


_wires: weakref.WeakSet[Wire] = weakref.WeakSet()


def _leave_all_to_parent() -> None:
    # A fork shares the connections: what the child wrote into one, or only read from it, would be the parent's loss.
    for wire in list(_wires):
        wire.leave_to_parent()


os.register_at_fork(after_in_child=_leave_all_to_parent)
