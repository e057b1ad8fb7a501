"""Making short names for web addresses out of titles."""

from __future__ import annotations

import re
import unicodedata


def slugify(title: str, max_length: int = 40) -> str:
    """Return `title` in lower case, with a single hyphen between its words.

    Accents are dropped, as is everything that is no letter or digit of ASCII. A slug has at most
    `max_length` characters, and neither starts nor ends with a hyphen.
    """
    decomposed = unicodedata.normalize("NFKD", title)
    ascii_only = decomposed.encode("ascii", "ignore").decode("ascii")
    slug = re.sub(r"[^a-z0-9]+", "-", ascii_only.lower()).strip("-")
    return slug[:max_length]


def unique_slug(title: str, taken: set[str]) -> str:
    """Return the slug of `title`, or the first of slug-2, slug-3, ... that is not `taken`."""
    slug = slugify(title)
    candidate = slug
    number = 2
    while candidate in taken:
        candidate = f"{slug}-{number}"
        number += 1
    return candidate
