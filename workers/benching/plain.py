"""The least that a client can be: hiredis packs, one write, hiredis reads, nothing in between."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import hiredis

from bus.errors import ReplyError, ServerUnreachable
from bus.target import Target

__all__ = ["Plain", "packed"]

# Its stub names one type of item only.
packed: Callable[[tuple[str | bytes | int, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
"""A command as it goes over the wire."""


class Plain:
    """A blocking connection. Use it in a `with`."""

    def __init__(self, target: Target) -> None:
        """Connect. Raises OSError."""
        if target.path is not None:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(os.fsencode(target.path))
        else:
            self._socket = socket.create_connection((target.host or "localhost", target.port))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader(replyError=ReplyError)

    def calls(self, commands: Sequence[tuple[str | bytes | int, ...]]) -> list[Any]:
        """All in one write; their replies in order. Raises the first error reply, ServerUnreachable."""
        self._socket.sendall(b"".join([packed(command) for command in commands]))
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = self._reader.gets()
            if reply is False:
                if not (received := self._socket.recv(262_144)):
                    raise ServerUnreachable("the server closed the connection")
                self._reader.feed(received)
                continue
            if isinstance(reply, ReplyError):
                raise reply
            replies.append(reply)
        return replies

    def __enter__(self) -> Self:
        """It is connected."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self._socket.close()
