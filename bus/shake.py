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
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

__all__ = ["shake", "strip"]

_DEFINITION = re.compile(r"^(?:local )?function ([A-Za-z_][\w.]*)\(")
_WORD = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_COMMENT = re.compile(r"^--\[\[.*?^\]\]|(?:^|(?<=\s))--(?: [^\n]*)?$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Piece:
    name: str | None
    """The function that it defines; None for anything else, which is always kept."""
    text: str


@cache
def _names(text: str) -> frozenset[str]:
    """Every name that a piece mentions, dotted ones also by their beginnings. Scripts share most of their pieces."""
    found: set[str] = set()
    for word in _WORD.findall(text):
        parts = word.split(".")
        found.update(".".join(parts[: end + 1]) for end in range(len(parts)))
    return frozenset(found)


@cache
def strip(text: str) -> str:
    """The text of a file without its comments. An include is none: it has no blank after its dashes."""
    return _COMMENT.sub("", text)


def shake(text: str) -> str:
    """The text, comments stripped, without its unreached top-level functions and blank lines."""
    pieces = list(_pieces(text))
    reached: set[str] = set()
    kept: set[int] = set()
    while True:
        new = {
            index for index, piece in enumerate(pieces)
            if index not in kept and (piece.name is None or piece.name in reached)
        }  # fmt: skip
        if not new:
            break
        kept |= new
        for index in new:
            reached |= _names(pieces[index].text)
    lines = "\n".join(pieces[index].text for index in sorted(kept)).split("\n")
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"


def _pieces(text: str) -> Iterator[_Piece]:
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        match = _DEFINITION.match(lines[at])
        end = at + 1
        if match and not re.search(r"\bend\s*$", lines[at]):
            while lines[end].rstrip() != "end":
                end += 1
            end += 1
        yield _Piece(match.group(1) if match else None, "\n".join(lines[at:end]))
        at = end
