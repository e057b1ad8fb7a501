"""Bytes to server-sent events, by the WHATWG's rules.

A packet may end anywhere: in a line, between CR and LF, in the middle of a character. So lines are cut at the bytes CR
and LF, and decoded when they are whole. They are not cut where `str.splitlines` would cut: U+2028 and its like are
text, and servers send them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["EventTooLarge", "SseDecoder", "SseEvent"]

_MAX_EVENT = 4 * 1024 * 1024
"""Bytes of one event. A model's token is some hundred; whatever sends more would fill the memory."""

_LF, _CR = ord("\n"), ord("\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLarge(ValueError):
    """An event is larger than any that a model sends."""


@dataclass(frozen=True, slots=True)
class SseEvent:
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
        """The events that these bytes end. Take them all: what follows them is read as one goes on."""
        self._buffer += data
        for line in self._lines():
            if (event := self._line(line)) is not None:
                yield event
        if self._size + len(self._buffer) > self._limit:
            raise EventTooLarge(f"an event of more than {self._limit} bytes")

    def end(self) -> SseEvent | None:
        """The stream ended in good order. An event whose empty line was never sent counts if its lines are whole."""
        return None if self._buffer else self._dispatch()

    def _lines(self) -> Iterator[bytes]:
        start = 0
        buffer = self._buffer
        try:
            while True:
                if self._after_cr and start < len(buffer):
                    self._after_cr = False
                    if buffer[start] == _LF:
                        start += 1
                at = self._end_of_line(max(start, self._searched))
                if at < 0:
                    self._searched = len(buffer)
                    return
                self._after_cr = buffer[at] == _CR
                line, start = bytes(buffer[start:at]), at + 1
                self._searched = start
                yield line
        finally:
            del buffer[:start]
            self._searched = max(0, self._searched - start)

    def _end_of_line(self, start: int) -> int:
        """Where the next CR or LF is, or -1. A CR is looked for before the LF only: what follows may be long."""
        line_feed = self._buffer.find(b"\n", start)
        carriage_return = self._buffer.find(b"\r", start, line_feed if line_feed >= 0 else len(self._buffer))
        return carriage_return if carriage_return >= 0 else line_feed

    def _line(self, raw: bytes) -> SseEvent | None:
        if self._first:
            self._first = False
            raw = raw.removeprefix(_BOM)
        if not raw:
            return self._dispatch()
        name, _, value = raw.decode("utf-8").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(raw)
            if self._size > self._limit:
                raise EventTooLarge(f"an event of more than {self._limit} bytes")
        elif name == "event":
            self._name = value
        return None  # a comment, an id, a retry time, or what nobody knows

    def _dispatch(self) -> SseEvent | None:
        event = SseEvent("\n".join(self._data), self._name) if self._data else None
        self._data, self._name, self._size = [], "", 0
        return event
