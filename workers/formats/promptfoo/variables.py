"""What a test's templates are filled in with: values, files, and every combination of those that are lists."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Final

from workers.formats.promptfoo.written import Written
from workers.formats.yaml_file import YamlFile
from workers.rows import read_text

__all__ = ["Fill", "Variables", "combinations", "variables_of"]

Variables = Mapping[str, object]
"""By name: text, or whatever else JSON has."""

Fill = Callable[[str, Variables], str]
"""Fills a template in. Raises ValueError with a clause."""

_MOST: Final = 10_000  # combinations of one test's variables


def variables_of(written: Written) -> dict[str, object]:
    """As they are written, files read. Raises InputError."""
    if not isinstance(written.value, Mapping):
        raise written.wrong("must be a mapping")
    return {name: _variable(written.below(name, value)) for name, value in written.value.items()}


def _variable(written: Written) -> object:
    if not isinstance(written.value, str) or not written.value.startswith("file://"):
        return written.value
    name = written.value.removeprefix("file://")
    path = written.file(name)
    if not path.is_file():
        raise written.wrong(f"no file {name}")
    match path.suffix.lower():
        case ".yaml" | ".yml" | ".json":
            return YamlFile(path).value
        case ".txt" | ".md" | ".csv" | ".html" | ".xml":
            return read_text(path, path)
        case suffix:
            raise written.wrong(f"a variable from a file ending in {suffix!r} is not supported")


def combinations(written: Written, variables: Variables, fill: Fill, *, expand: bool) -> list[Variables]:
    """One mapping, or where it is to `expand`, one for each combination of those that are lists. Raises InputError.

    `written`: where the test's own stand. Those that are templates of others are filled in.
    """
    lists = {name: value for name, value in variables.items() if isinstance(value, list)} if expand else {}
    count = math.prod(map(len, lists.values()))
    if not 0 < count <= _MOST:
        raise written.wrong(f"makes {count:,} combinations, from 1 to {_MOST:,} are possible")
    chosen = (dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values()))
    return [_nested(written, {**variables, **one}, fill) for one in chosen]


def _nested(written: Written, variables: Variables, fill: Fill) -> Variables:
    made = dict(variables)
    for name, value in variables.items():
        if isinstance(value, str) and ("{{" in value or "{%" in value):
            try:
                made[name] = fill(value, {other: one for other, one in variables.items() if other != name})
            except ValueError as error:
                raise written.below(name, value).wrong(str(error)) from None
    return made
