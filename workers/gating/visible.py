"""Somebody else's text (a case's id, a solver's last words) in a format of ours, so that it is shown and never obeyed.

What a reader could not see, or a terminal, an XML reader, a Markdown renderer or a CI runner would act on, is spelt
out: an escape character as `\\x1b`, a mark that turns the line round as `\\u202e`. Nothing is left out: two ids that
differ look different.
"""

from __future__ import annotations

import re

__all__ = ["markdown", "property_of", "said", "visible"]

_MEANS_SOMETHING = re.compile(r"[!-/:-@\[-`{-~]")  # every ASCII character that is no letter, digit or blank
_LONGEST = 2_000  # characters; the export has all of it


def visible(text: str) -> str:
    """On one line, printable, at most 2,000 characters. A backslash stays one: this is for reading, not for undoing."""
    shown = "".join(each if each.isprintable() else _spelt(each) for each in text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _spelt(each: str) -> str:
    code = ord(each)
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(each)
    return named or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")  # noqa: PLR2004


def markdown(text: str) -> str:
    """As text in a cell of a Markdown table: no markup, link, mention, HTML or end of the cell can be made of it.

    Punctuation becomes a character reference, which Markdown shows as the character and never takes for syntax
    (CommonMark 0.31, 2.5).
    """
    return _MEANS_SOMETHING.sub(lambda found: f"&#{ord(found[0])};", visible(text))


def said(text: str) -> str:
    """As the message of a workflow command of GitHub Actions."""
    return visible(text).replace("%", "%25")


def property_of(text: str) -> str:
    """As a property of one: there, `:` and `,` end something."""
    return said(text).replace(":", "%3A").replace(",", "%2C")
