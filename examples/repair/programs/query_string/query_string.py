"""Reading the query part of a web address."""

from __future__ import annotations

from urllib.parse import unquote


def parse_query(query: str) -> dict[str, list[str]]:
    """Return the values of each name in `query`, in order, without its leading question mark.

    In names and values a plus sign stands for a space, and %2B for a plus sign. A name without "=" has
    an empty value; empty parts between two "&" are skipped.
    """
    values: dict[str, list[str]] = {}
    for part in query.removeprefix("?").split("&"):
        if not part:
            continue
        name, _, value = part.partition("=")
        values.setdefault(decode(name), []).append(decode(value))
    return values


def decode(text: str) -> str:
    """Return `text` with plus signs and percent escapes replaced."""
    return unquote(text).replace("+", " ")


def first_value(query: str, name: str, default: str = "") -> str:
    """Return the first value of `name` in `query`, or `default` if the name is not there."""
    return parse_query(query).get(name, [default])[0]
