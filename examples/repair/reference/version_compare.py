"""Comparing version numbers such as 1.10.2 and 2.0-rc1."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cmp_to_key


@dataclass(frozen=True)
class Version:
    """The numbers of a version, and the text after its hyphen (empty for a release)."""

    numbers: tuple[int, ...]
    suffix: str


def parse(text: str) -> Version:
    """Return the parts of `text`; zeros at the end of its numbers don't count: 1.0 is 1."""
    main, _, suffix = text.strip().partition("-")
    numbers = [int(part) for part in main.split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return Version(tuple(numbers), suffix)


def compare(left: str, right: str) -> int:
    """Return -1, 0 or 1 as `left` is older than, the same as or newer than `right`.

    A version with a suffix comes before the release of the same numbers; suffixes compare as text.
    """
    a, b = parse(left), parse(right)
    a_key = (a.numbers, a.suffix == "", a.suffix)
    b_key = (b.numbers, b.suffix == "", b.suffix)
    return (a_key > b_key) - (a_key < b_key)


def newest(versions: list[str]) -> str:
    """Return the newest of `versions`, the first one of equals. Raises ValueError if there is none."""
    return max(versions, key=cmp_to_key(compare))
