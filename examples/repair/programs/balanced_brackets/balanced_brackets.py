"""Checking that the brackets of a text are closed in the right order."""

from __future__ import annotations

PAIRS: dict[str, str] = {")": "(", "]": "[", "}": "{"}


def first_problem(text: str) -> int | None:
    """Return the index of the first bracket that is wrong, or None if all are balanced.

    A closing bracket without its partner is wrong where it stands. If brackets are still open at the
    end of the text, the innermost of them (the one opened last) is reported.
    """
    opened: list[int] = []
    for index, character in enumerate(text):
        if character in PAIRS.values():
            opened.append(index)
        elif character in PAIRS:
            if not opened or text[opened[-1]] != PAIRS[character]:
                return index
            opened.pop(0)
    return opened[-1] if opened else None


def is_balanced(text: str) -> bool:
    """Return whether each bracket of `text` has its partner."""
    return first_problem(text) is None
