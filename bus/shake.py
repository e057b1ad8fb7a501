"""Leaves out of a script what it does not use.

A script is run from its first line at every call, and each function that it defines costs the server an allocation
then: the shared pieces of all fences together took longer than the work itself. So the loader keeps, of the functions
that the included files define, those that the script reaches. This changes cost, never meaning: what is dropped is
named nowhere in what is kept.

It relies on how the Lua here is written, and on nothing else: a function at the top level begins at the start of a line
with `function` or `local function`, and ends on that line or at the next line that is `end` alone.
"""

from __future__ import annotations

import re
from functools import cache

__all__ = ["shake", "strip"]

_FUNCTION = re.compile(
    r"^((?:local )?function ([A-Za-z_][\w.]*)\((?:[^\n]*\bend[ \t]*$|.*?^end[ \t]*$))", re.DOTALL | re.MULTILINE
)
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_COMMENT = re.compile(r"^--\[\[.*?^\]\]|(?:^|(?<=\s))--(?: [^\n]*)?$", re.DOTALL | re.MULTILINE)


@cache
def _names(text: str) -> frozenset[str]:
    """Every name that a piece mentions, dotted ones also by their beginnings. Scripts share most of their pieces."""
    found: set[str] = set()
    for word in set(_WORD.findall(text)):
        parts = word.split(".")
        found.update(".".join(parts[: end + 1]) for end in range(len(parts)))
    return frozenset(found)


@cache
def strip(text: str) -> str:
    """The text of a file without its comments. An include is none: it has no blank after its dashes."""
    return _COMMENT.sub("", text)


def shake(text: str) -> str:
    """The text, comments stripped, without its unreached top-level functions and blank lines."""
    parts = _FUNCTION.split(text)
    others, functions, names = parts[::3], parts[1::3], parts[2::3]
    unreached: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        unreached.setdefault(name, []).append(index)
    kept: set[int] = set()
    waiting = list(others)  # always kept, and so is what they name, and what that names
    while waiting:
        for name in _names(waiting.pop()) & unreached.keys():
            reached = unreached.pop(name)
            kept.update(reached)
            waiting += [functions[index] for index in reached]
    pieces = [others[0]]
    for index, other in enumerate(others[1:]):
        pieces += [functions[index], other] if index in kept else [other]
    return "\n".join(line.rstrip() for line in "".join(pieces).split("\n") if line.strip()) + "\n"
