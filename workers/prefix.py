"""The committed events of a conversation, and how far in them an attempt of the solver has been answered.

Requests are answered in order, each as it was answered before, as long as the same is asked. Remarks are not requests:
they may be passed over. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bus.chain import EMPTY_HEAD, next_head
from bus.types import Digest
from workers.redaction import redacted

__all__ = ["Prefix", "event_json", "event_of"]

_as_json = json.JSONEncoder(ensure_ascii=False).encode


class Prefix:
    """See the module's text."""

    def __init__(self, payloads: Sequence[str]) -> None:
        """As they are written; nothing was answered from them yet."""
        self.head: Digest = EMPTY_HEAD
        self.length = 0
        self.requests = 0
        """To models, and of tools."""
        self.writes = 0
        """That were told of."""
        self.at = 0
        """How many of the events the attempt has gone by."""
        self.repeated = 0
        """Requests that were answered from it."""
        self._events: list[Mapping[str, Any]] = []
        for payload in payloads:
            self._put(payload)

    def _put(self, payload: str) -> None:
        self.head = next_head(self.head, payload)
        self.length += 1
        event = event_of(payload)
        self._events.append(event)
        kind = event.get("kind")
        self.requests += kind in ("model", "tools")
        self.writes += kind == "write"

    def add(self, payloads: Sequence[str]) -> None:
        """These were written at its end, and the attempt knows them: they are its own."""
        for payload in payloads:
            self._put(payload)
        self.at = len(self._events)

    def start_over(self) -> None:
        """The attempt, or the next one, begins again."""
        self.at = self.repeated = 0

    def _next(self) -> int | None:
        for at in range(self.at, len(self._events)):
            if _request_of(self._events[at]) is not None:
                return at
        return None

    @property
    def is_used_up(self) -> bool:
        """Whether it has no more requests."""
        return self._next() is None

    def answer(self, kind: str, request: str) -> Mapping[str, Any] | None:
        """The next request's event, if it answers this one; None if it answers another, or if there is none."""
        at = self._next()
        if at is None:
            return None
        event = self._events[at]
        if event.get("kind") != kind or _request_of(event) != request:
            return None
        self.at, self.repeated = at + 1, self.repeated + 1
        return event

    def find_note(self, payload: str) -> bool:
        """Whether this remark stands before the next request; it is gone by then."""
        upto = self._next()
        for at in range(self.at, len(self._events) if upto is None else upto):
            if event_json(self._events[at]) == payload:
                self.at = at + 1
                return True
        return False

    def pass_by(self) -> bool:
        """Leave behind what stands there yet; whether remarks were among it, which this attempt has not repeated."""
        left = any(event.get("kind") == "note" for event in self._events[self.at :])
        self.at = len(self._events)
        return left


def event_json(event: Mapping[str, object]) -> str:
    """An event's payload, without the secrets that this process knows."""
    text = _as_json(event)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair: spelt out, since no server takes it as it is
        text = json.dumps(event)
    return redacted(text)


def event_of(payload: str) -> Mapping[str, Any]:
    """An event of a transcript; of the kind `unreadable` where it is no JSON object."""
    try:
        event = json.loads(payload)
    except ValueError:
        event = None
    return event if isinstance(event, dict) else {"kind": "unreadable"}


def _request_of(event: Mapping[str, Any]) -> str | None:
    """What was asked, by a digest; None for an event that answers nothing."""
    match event.get("kind"):
        case "model" | "tools":
            return str(event.get("request"))
        case "write":
            return f"{event.get('path')}\n{event.get('digest')}"
        case "note" | "lost" | "turned" | "restart":
            return None
        case kind:
            return f"unknown {kind}"
