"""Results as text: what a solver sees, and what the transcript keeps."""

from __future__ import annotations

import contextlib
import json
from typing import Final

from workers.redaction import redacted

__all__ = ["LONGEST", "as_text", "first_line", "json_of", "shortened", "well_formed"]

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

    The call has been made by then: a result that is hard to write down is no reason to say that it failed. It is the
    suite's own object, and whatever is asked of it may raise anything.
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, str):
        return well_formed(value)
    for written in (json_of, repr):
        with contextlib.suppress(Exception):  # nested too deep, too many digits, a __repr__ that fails
            return well_formed(written(value))
    return f"<{type(value).__name__}>"


def well_formed(text: str) -> str:
    """A plain str that can be sent: half of a surrogate pair becomes a question mark."""
    return str.encode(text, "utf-8", "replace").decode()


def shortened(text: str, most: int = LONGEST) -> str:
    """A text of about `most` bytes as JSON, at most; it says so when it was longer."""
    if 6 * len(text) + 2 <= most:  # however it is escaped
        return text
    kept = text[:most]
    while (size := len(json.dumps(kept, ensure_ascii=False).encode())) > most:
        kept = kept[: len(kept) * most // size]
    return text if kept == text else f"{kept}\n[{len(text) - len(kept)} more characters]"


def first_line(text: str, most: int = 300) -> str:
    """The first line that holds anything, at most `most` characters; may be empty.

    Secrets are taken out first: of one that is cut in two, nobody would know the beginning.
    """
    line = next((line for line in redacted(text).splitlines() if line.strip()), "")
    line = " ".join(line.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
