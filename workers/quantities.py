"""Durations, sizes and shares, as people write them in a suite.

A bare `timeout = 5000` has been read as seconds by one half of every team and as milliseconds by the other.
So text carries its unit (`"10s"`, `"1GB"`, `"50%"`), and a bare number means the base unit only: seconds,
bytes. Every parser raises `ValueError` with one sentence that says what would be understood.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

__all__ = ["duration", "share_of", "size"]

_WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)", re.ASCII)
_SHARE: Final = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)\s*%", re.ASCII)

_LONGEST: Final = 10**9
"""Seconds, some thirty years: beyond it, timers overflow."""

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


def duration(written: object) -> float:
    """Seconds, above zero: `"500ms"`, `"10s"`, `"2m"`, `"1.5h"`, `"1d"`, or a number of seconds.

    Raises ValueError with how it is written.
    """
    seconds = _number(written, _SECONDS)
    if seconds is None or not 0 < seconds <= _LONGEST:
        raise ValueError(f'{written!r} is not a duration (write it as "500ms", "10s", "2m" or "1h")')
    return float(seconds)


def size(written: object) -> int:
    """Bytes, at least one: `"10MB"` (10 000 000), `"1GiB"` (2^30), `"512kB"`, or a number of bytes.

    Raises ValueError with how it is written.
    """
    count = _number(written, _BYTES)
    if count is None or not 1 <= count < 2**63:
        raise ValueError(f'{written!r} is not a size (write it as "500kB", "10MB" or "1GiB")')
    return int(count)


def share_of(written: str, whole: int) -> int:
    """The smallest count that is at least the share `"N%"` of `whole`, and at least 1.

    Decimal arithmetic: with floats, 7% of 100 is 7.000000000000001, which rounds up to 8.
    Raises ValueError with how it is written.
    """
    match = _SHARE.fullmatch(written.strip())
    if match is None or Decimal(match[1]) > 100:  # noqa: PLR2004
        raise ValueError(f'{written!r} is not a share (write a number of runs, or "50%")')
    count = (Decimal(match[1]) * whole / 100).to_integral_value(ROUND_CEILING)
    return max(1, int(count))


def _number(written: object, units: dict[str, float] | dict[str, int]) -> int | float | None:
    if isinstance(written, bool):
        return None
    if isinstance(written, int | float):
        return written
    match = _WRITTEN.fullmatch(written.strip()) if isinstance(written, str) else None
    if match is None or match[2] not in units:
        return None
    return float(match[1]) * units[match[2]]
