"""Events of a transcript as they lie on the server: `<generation> <head after it> <payload>`, in a list, seq 1 first.

A stream would be the obvious thing, but its first node takes four kilobytes, and most transcripts have one short event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bus.texts import text_of
from bus.types import Digest, Gen

__all__ = ["StoredEvent", "ends_in"]


class StoredEvent(NamedTuple):
    """One event. `head` is that of the chain behind it, `gen` the generation that appended it."""

    gen: Gen
    head: Digest
    payload: str

    @classmethod
    def read(cls, stored: bytes) -> StoredEvent:
        """Raises ValueError for what is no event."""
        gen, head, payload = stored.split(b" ", 2)
        return cls(Gen(int(gen)), Digest(text_of(head)), text_of(payload))

    def __bytes__(self) -> bytes:
        """As it is stored."""
        return f"{self.gen} {self.head} {self.payload}".encode("utf-8", "surrogatepass")


def ends_in(stored: Sequence[bytes], head: Digest) -> bool:
    """Whether the last of a conversation's events says that its chain ends in `head`."""
    return bool(stored) and stored[-1].split(b" ", 2)[1:2] == [head.encode("utf-8", "surrogatepass")]
