"""The tickets themselves: a store with idempotency keys and undos, as a tool gateway has it.

    key, first time     → made                    key, again   → the first ticket
    undo, ticket there  → undone                  undo, again  → the same answer
    undo, no ticket yet → the key is burnt: the original, when it arrives after all, is refused for ever

The planes are two worlds: a key of one means nothing in the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Final

__all__ = ["PLANES", "Made", "Ticket", "Tickets", "Undo", "plane_of"]

PLANES: Final = ("live", "shadow")


def plane_of(key: str) -> str | None:
    """The plane that a key names before its first `:`; None: it names none."""
    prefix, colon, _ = key.partition(":")
    return prefix if colon and prefix in PLANES else None


@dataclass(frozen=True, slots=True)
class Ticket:
    """An effect, done once."""

    id: str
    plane: str
    key: str
    body: Mapping[str, object]
    undone: bool = False

    def as_json(self) -> dict[str, object]:
        """As the interface answers."""
        return {
            "id": self.id,
            "plane": self.plane,
            "key": self.key,
            "state": "undone" if self.undone else "open",
            "body": self.body,
        }


@dataclass(frozen=True, slots=True)
class Made:
    """What came of a request to make one."""

    ticket: Ticket
    repeated: bool
    other_body: bool = False


class Undo(StrEnum):
    """What came of a request to undo one; the value is the counter's name."""

    UNDONE = "undone"
    TOMBSTONE = "tombstones"
    REPEAT = "undo_repeats"


@dataclass(slots=True)
class _Kept:
    tickets: list[Ticket]
    burnt: bool = False


class Tickets:
    """All tickets. Used by the lab's loop only; what others read is made of values that never change."""

    def __init__(self) -> None:
        """Empty."""
        self._kept: dict[str, dict[str, _Kept]] = {plane: {} for plane in PLANES}

    def make(self, plane: str, key: str, body: Mapping[str, object], *, forget: bool = False) -> Made | None:
        """A ticket, or the first one of the key; None: the key was undone. `forget` makes another one."""
        kept = self._kept[plane].setdefault(key, _Kept([]))
        if kept.burnt:
            return None
        if kept.tickets and not forget:
            return Made(kept.tickets[0], repeated=True, other_body=kept.tickets[0].body != body)
        digest = sha256(f"{plane}/{key}/{len(kept.tickets)}".encode("utf-8", "surrogatepass")).hexdigest()
        ticket = Ticket(f"ticket-{digest[:12]}", plane, key, body)
        kept.tickets.append(ticket)
        return Made(ticket, repeated=False)

    def undo(self, plane: str, key: str) -> Undo:
        """Undo what the key has made, and what it would make from now on."""
        kept = self._kept[plane].setdefault(key, _Kept([]))
        if kept.burnt:
            return Undo.REPEAT
        kept.burnt = True
        if not kept.tickets:
            return Undo.TOMBSTONE
        kept.tickets = [replace(ticket, undone=True) for ticket in kept.tickets]
        return Undo.UNDONE

    def of_key(self, plane: str, key: str) -> dict[str, object] | None:
        """What is known of a key; None: nothing."""
        kept = self._kept[plane].get(key)
        if kept is None:
            return None
        state = "undone" if kept.burnt else "open"
        return {"key": key, "plane": plane, "state": state, "tickets": [ticket.as_json() for ticket in kept.tickets]}

    def of_plane(self, plane: str) -> tuple[Ticket, ...]:
        """In the order in which their keys came."""
        return tuple(ticket for kept in list(self._kept[plane].values()) for ticket in tuple(kept.tickets))
