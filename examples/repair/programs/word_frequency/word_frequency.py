"""Counting the words of a text, however its accented letters are stored."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

WORD = re.compile(r"\w+(?:'\w+)?")


def words(text: str) -> list[str]:
    """Return the words of `text` for comparison: case folded, each accented letter one code point."""
    composed = unicodedata.normalize("NFD", text.casefold())
    return WORD.findall(composed)


def most_common(text: str, limit: int = 10) -> list[tuple[str, int]]:
    """Return the `limit` most frequent words with their counts; equal counts in alphabetical order."""
    counts = Counter(words(text))
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ranked[:limit]
