"""The order in which a mailbox shows its messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Message:
    """A received message; `pinned` ones stay at the top."""

    subject: str
    received: date
    pinned: bool = False


def shown(messages: list[Message]) -> list[Message]:
    """Return pinned messages before others, and within both the newest first."""
    newest_first = sorted(messages, key=lambda message: message.received)
    return sorted(newest_first, key=lambda message: not message.pinned)


def preview(messages: list[Message], limit: int) -> list[str]:
    """Return the subjects of the first `limit` messages shown."""
    return [message.subject for message in shown(messages)[:limit]]
