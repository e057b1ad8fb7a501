"""Replies that list fields and values in turn, as RESP2 answers a hash, an entry, or facts about something."""

from __future__ import annotations

from bus.texts import AS_PRESENTED
from bus.wire import Reply

__all__ = ["hash_of", "pairs_of"]


def pairs_of(flat: Reply) -> dict[bytes, Reply]:
    """`[field, value, …]` as a dict; a value is whatever the server answers there. Raises ValueError at half a pair."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def hash_of(flat: Reply, errors: str = AS_PRESENTED) -> dict[str, str]:
    """The same where all values are texts; `errors`: what becomes of other bytes than UTF-8, as in `bytes.decode`."""
    words = [item.decode("utf-8", errors) for item in flat]
    return dict(zip(words[::2], words[1::2], strict=True))
