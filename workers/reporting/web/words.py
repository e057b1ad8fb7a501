"""Figures as a reader writes them. The page's script writes durations and counts too: a test holds the two together."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Final

__all__ = ["NOTHING", "count", "duration", "instant", "share", "visible"]

NOTHING: Final = "\N{EN DASH}"
"""What stands where there is no figure."""
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_KEPT: Final = frozenset("\n\t\u200c\u200d")  # the joiners are a part of words and emoji, and move nothing
_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE


def count(number: int) -> str:
    """`12,345`."""
    return f"{number:,}"


def duration(ms: int | None) -> str:
    """`640 ms`, `12.3 s`, `3 min 05 s`, `2 h 03 min`; an en dash where there is none. Cut off, never rounded up."""
    if ms is None:
        return NOTHING
    if ms < _SECOND:
        return f"{ms} ms"
    if ms < _MINUTE:
        return f"{ms // 100 / 10:.1f} s"
    if ms < _HOUR:
        return f"{ms // _MINUTE} min {ms % _MINUTE // _SECOND:02} s"
    return f"{ms // _HOUR:,} h {ms % _HOUR // _MINUTE:02} min"


def share(part: float, whole: float = 1) -> str:
    """`84.21%`, the digits that the command line prints as 0.8421; of nothing, an en dash."""
    return f"{100 * part / whole:.2f}%" if whole else NOTHING


def instant(unix_ms: int) -> str:
    """`2026-11-29 23:30:46 UTC`."""
    return datetime.fromtimestamp(unix_ms / _SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def visible(text: str) -> str:
    """Somebody else's text as it stands, but for what a reader would not see or be misled by.

    A right-to-left override turns the rest of a line round; half of a surrogate pair can't be written to a file.
    """
    hidden = [each for each in set(text) if unicodedata.category(each) in _HIDDEN and each not in _KEPT]
    return text.translate({ord(each): "\N{REPLACEMENT CHARACTER}" for each in hidden}) if hidden else text
