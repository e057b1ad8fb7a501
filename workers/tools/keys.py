"""The idempotency key under which the world knows a call."""

from __future__ import annotations

import hashlib
from typing import Final
from urllib.parse import quote

from bus.types import Plane

__all__ = ["wire_key"]

_SAFE: Final = "!#$&'*+-./=?@^_`|~"
_LONGEST: Final = 200
"""Characters; services refuse keys of more than 255."""


def wire_key(plane: Plane, incarnation: str, intent: str) -> str:
    """The key that a call carries, in printable ASCII: the same for each attempt, and no other call's anywhere.

    `<plane>:<incarnation>:<intent>`: whoever stands before a tool can compare it with the header `Evalbus-Plane`.
    An intent's id is unique in its batch only, and a tool may serve many batches, also of the same name one after the
    other: under the bare id, the second one's calls would get the first one's answers. `incarnation` is drawn at random
    when a batch is created.
    """
    began = f"{plane.value}:{incarnation}:"
    key = began + quote(intent, safe=_SAFE)
    return key if len(key) <= _LONGEST else began + hashlib.sha256(intent.encode()).hexdigest()
