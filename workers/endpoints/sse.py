"""Bytes to server-sent events, by the WHATWG's rules.

A packet may end anywhere: in a line, between CR and LF, in the middle of a character. So lines are cut at the bytes CR
and LF, and decoded when they are whole. They are not cut where `str.splitlines` would cut: U+2028 and its like are
text, and servers send them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["EventTooLarge", "SseDecoder", "SseEvent"]

_MAX_EVENT = 4 * 1024 * 1024
"""Bytes of one event. A model's token is some hundred; whatever sends more would fill the memory."""

_LF, _CR = ord("\n"), ord("\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event is larger than any that a model sends."""


class SseEvent(NamedTuple):
    """One event. `name` is empty where the stream names none, which means `message`."""

    data: str
    name: str = ""


class SseDecoder:
    """`feed` it what arrives. Raises EventTooLarge, and UnicodeDecodeError for what is no UTF-8."""

    def __init__(self, limit: int = _MAX_EVENT) -> None:
        """`limit`: bytes of one event."""
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0  # so far the buffer holds no end of a line: a long line is looked at once
        self._after_cr = False
        self._first = True
        self._data: list[str] = []
        self._name = ""
        self._size = 0

    def feed(self, data: bytes) -> Iterator[SseEvent]:
        """The events that these bytes end. Take them all: what follows them is read as one goes on.

        Raises EventTooLarge for one of more bytes than the limit.
        """
        self._buffer += data
        for line in self._lines():
            if line:
                self._line(line)
            elif (event := self._dispatch()) is not None:
                yield event
        if self._size + len(self._buffer) > self._limit:
            raise EventTooLarge(f"an event of more than {self._limit} bytes")

    def end(self) -> SseEvent | None:
        """The stream ended in good order. An event whose empty line was never sent counts if its lines are whole."""
        return None if self._buffer else self._dispatch()

    def _lines(self) -> list[bytes]:
        """The lines that are whole, all at once: a packet may bring a hundred. The rest stays in the buffer."""
        buffer = self._buffer
        if self._after_cr and buffer:
            self._after_cr = False
            if buffer[0] == _LF:
                del buffer[:1]
        end = max(buffer.rfind(b"\n", self._searched), buffer.rfind(b"\r", self._searched))
        if end < 0:
            self._searched = len(buffer)
            return []
        self._after_cr = buffer[end] == _CR
        whole = bytes(buffer[:end])
        del buffer[: end + 1]
        self._searched = len(buffer)
        if b"\r" in whole:
            if not self._after_cr:
                whole = whole.removesuffix(b"\r")  # it ended with both
            whole = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = whole.split(b"\n")
        if self._first:
            self._first = False
            lines[0] = lines[0].removeprefix(_BOM)
        return lines

    def _line(self, raw: bytes) -> None:
        if raw.startswith(b"data: "):
            name, value = "data", raw[6:].decode("utf-8")
        else:
            name, _, value = raw.decode("utf-8").partition(":")
            value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(raw)
            if self._size > self._limit:
                raise EventTooLarge(f"an event of more than {self._limit} bytes")
        elif name == "event":
            self._name = value
        # Else a comment, an id, a retry time, or what nobody knows.

    def _dispatch(self) -> SseEvent | None:
        data, name = self._data, self._name
        self._data, self._name, self._size = [], "", 0
        if len(data) == 1:
            return SseEvent(data[0], name)
        return SseEvent("\n".join(data), name) if data else None
