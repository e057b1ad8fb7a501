"""Text of somebody else's in one of our lines: an exception's words, a name that was mistyped for a file."""

from __future__ import annotations

__all__ = ["brief"]


def brief(text: str, limit: int) -> str:
    """One line of at most `limit` characters, nothing in it that a terminal would obey instead of showing."""
    line = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in " ".join(text.split()))
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
