"""Where a field of a TOML file is written: `tomllib` tells what a file holds, and not where.

A field was written by the first statement after which the file holds it. So beginnings of the file are parsed, each
half as far from the last one: some ten for a thousand lines.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["line_of"]

_Step = str | int
"""Into a table by name, or into a list by index."""
_STATEMENT: Final = re.compile(r"""\s*(\[|["'\w.-]+\s*=)""")
"""How a line begins that begins a statement; lines of a text of several lines may look so, too."""


def line_of(text: str, field: str) -> int | None:
    """The line, from 1, in which `field` begins, such as `tools.book.timeout` or `cases[2].id`.

    Of a field that is missing, that of the table in which it should be; None where the file has neither.
    """
    steps = [int(index) if index else name for index, name in re.findall(r"\[(\d+)\]|([^.\[\]]+)", field)]
    whole = tomllib.loads(text)
    while steps and not _reaches(whole, steps):
        steps.pop()
    if not steps:
        return None
    lines = text.split("\n")
    starts = [at for at, line in enumerate(lines) if _STATEMENT.match(line)] + [len(lines)]
    before, after = 0, len(starts) - 1  # of the statements: what stands before the former lacks the field
    while True:
        held = ((at, _parsed(lines[: starts[at]])) for at in _between(before, after))
        at, document = next(((at, one) for at, one in held if one is not None), (before, None))
        if document is None:
            return starts[before] + 1
        if _reaches(document, steps):
            after = at
        else:
            before = at


def _between(before: int, after: int) -> Iterator[int]:
    """From the middle up, and then down: what does not parse ends within a statement."""
    middle = (before + after) // 2
    yield from range(max(middle, before + 1), after)
    yield from range(middle - 1, before, -1)


def _parsed(lines: Sequence[str]) -> object:
    try:
        return tomllib.loads("\n".join(lines))
    except tomllib.TOMLDecodeError:
        return None


def _reaches(value: object, steps: Sequence[_Step]) -> bool:
    """A name may hold dots of its own: `tools."a.b".timeout` is told as `tools.a.b.timeout`."""
    if not steps:
        return True
    if isinstance(value, list):
        return isinstance(steps[0], int) and steps[0] < len(value) and _reaches(value[steps[0]], steps[1:])
    if not isinstance(value, dict):
        return False
    names = (".".join(map(str, steps[:end])) for end in range(1, len(steps) + 1))
    return any(name in value and _reaches(value[name], steps[end:]) for end, name in enumerate(names, start=1))
