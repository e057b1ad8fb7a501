"""Somebody else's text, as a page can hold it: any length and any content was recorded, but not all of it is shown."""

from __future__ import annotations

__all__ = ["clipped"]

_LONGEST = 8_000  # characters: more of one value than anybody reads on a page


def clipped(text: str, limit: int = _LONGEST) -> str:
    """At most `limit` characters, and how many more there were. Halves of surrogate pairs are spelt out.

    Line breaks and all else stay as they are: this is what was said, not a line of a table.
    """
    left = len(text) - limit
    shown = text[:limit].encode("utf-8", "backslashreplace").decode()
    return shown if left <= 0 else f"{shown}… ({left:,} characters more)"
