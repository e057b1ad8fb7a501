"""How much a randomised test plays: what `make test` has time for, or so many times that (`make soak`)."""

from __future__ import annotations

import os

__all__ = ["times"]


def times(count: int) -> int:
    """`count`, multiplied by `EVALBUS_SOAK` (a whole number, 1 by default)."""
    return count * int(os.environ.get("EVALBUS_SOAK", "1"))
