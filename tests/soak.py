"""How much is played: what `make test` has time for, or so many times that (`make soak`)."""

from __future__ import annotations

import os

import pytest

__all__ = ["soaked", "times"]

soaked = pytest.mark.skipif("EVALBUS_SOAK" not in os.environ, reason="takes long; make soak plays it")
"""What `make test` has no time for, and has a shorter sister of."""


def times(count: int) -> int:
    """`count`, multiplied by `EVALBUS_SOAK` (a whole number, 1 by default)."""
    return count * int(os.environ.get("EVALBUS_SOAK", "1"))
