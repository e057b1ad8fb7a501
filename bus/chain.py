"""The hash chain of a transcript: each head commits to every event before it."""

from __future__ import annotations

import hashlib

from bus.types import Digest

__all__ = ["EMPTY_HEAD", "next_head"]

EMPTY_HEAD = Digest("0" * 64)
"""The head of a transcript without events."""


def next_head(parent: str, payload: str) -> Digest:
    """`head′` = SHA-256 over the UTF-8 bytes of the parent's hex text followed by the payload."""
    return Digest(hashlib.sha256((parent + payload).encode("utf-8", "surrogatepass")).hexdigest())
