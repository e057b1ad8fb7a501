"""Guest lists of events, put together invitation by invitation."""

from __future__ import annotations


def invite(name: str, guests: list[str] | None = None) -> list[str]:
    """Add `name` to `guests`, or to a new list when none is given, and return the list.

    Nobody is invited twice.
    """
    if guests is None:
        guests = []
    cleaned = name.strip()
    if not cleaned:
        raise ValueError("a guest has a name")
    if cleaned not in guests:
        guests.append(cleaned)
    return guests


def invite_all(names: list[str]) -> list[str]:
    """Return a new guest list with all `names`, in their order."""
    guests: list[str] = []
    for name in names:
        invite(name, guests)
    return guests
