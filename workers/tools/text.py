"""Results as text: what a solver sees, and what the transcript keeps."""

from __future__ import annotations

import json
from typing import Final

__all__ = ["LONGEST", "as_text", "first_line", "json_of", "shortened"]

LONGEST: Final = 50_000
"""Bytes of a result, written as JSON; of a longer one the beginning is kept, and how much is missing."""


def json_of(value: object) -> str:
    """A value as JSON, the same for equal values. Raises TypeError, ValueError for what is none."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no text") from None
    return text


def as_text(value: object) -> str:
    """What a function returned: text as it is, nothing as no text, all else as JSON, else as Python would print it.

    The call has been made by then: a result that is hard to write down is no reason to say that it failed.
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str):
        try:
            value = json_of(value)
        except (TypeError, ValueError, RecursionError):
            value = repr(value)
    return value.encode("utf-8", "replace").decode()


def shortened(text: str, most: int = LONGEST) -> str:
    """A text of about `most` bytes as JSON, at most; it says so when it was longer."""
    kept = text[:most]
    while (size := len(json.dumps(kept, ensure_ascii=False).encode())) > most:
        kept = kept[: len(kept) * most // size]
    return text if kept == text else f"{kept}\n[{len(text) - len(kept)} more characters]"


def first_line(text: str, most: int = 300) -> str:
    """The first line that holds anything, at most `most` characters; may be empty."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    line = " ".join(line.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
