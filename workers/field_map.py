"""Which column of a data file is which field of a case: `fields = { id = "qid", input = "question" }` in a suite.

    "question"               a column's value, as it is
    "{context}\\n\\n{question}"  a text in which columns are filled in
    "answers.text.0"         what is inside a column: of an object its entry, of a list the item of that number, from 0
    "#"                      for `id` only: the number of the row, from 1; a file whose order changes gets other ids

A column that is called like the whole path is meant before what is inside another one.

Columns that no field names stay what they are without a map: entries of the metadata. So they do when a template has
used them; a column that a field takes whole does not stand there twice. A column that has the name of a field for which
another one was named stands there as `column.<name>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bus.errors import InputError
from bus.nearest import nearest

__all__ = ["FIELDS", "NUMBERED", "FieldMap"]

FIELDS: Final = ("id", "input", "target", "metadata")
NUMBERED: Final = "#"
_REMEDY: Final = "change `fields` in the suite file"
_PLACE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class FieldMap:
    """What a suite says of its columns; an empty one means that they are called as the fields are."""

    of: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def checked(cls, written: Mapping[str, str]) -> FieldMap:
        """Raises ValueError with a clause for a field that no case has, or a template that cannot be read."""
        for name, column in written.items():
            if name not in FIELDS:
                near = nearest(name, FIELDS)
                hint = f"did you mean {near!r}?" if near else f"they are {', '.join(FIELDS)}"
                raise ValueError(f"a case has no field {name!r} ({hint})")
            if not column:
                raise ValueError(f"{name} names no column")
            if column == NUMBERED and name != "id":
                raise ValueError(f"{name} cannot be {NUMBERED!r}, only an id is numbered")
            if "{" in _PLACE.sub("", column) or "}" in _PLACE.sub("", column):
                raise ValueError(f"{name}: {column!r} has a brace without its other half (write {{{{ for a brace)")
        return cls(written)

    def columns(self) -> list[str]:
        """Every column that must be there."""
        return [name for source in self.of.values() for name in _columns_of(source)]

    def check(self, names: Sequence[str], shown: Path | str, line: int | None) -> None:
        """Raise InputError for a column that the file, or a line of it, does not have."""
        for name in self.columns():
            if name not in names and name.partition(".")[0] not in names:
                near = nearest(name, names)
                have = ", ".join(repr(one) for one in names[:8]) or "none"
                raise InputError(
                    f"has no column {name!r}, which `fields` names (it has {have})",
                    file=shown,
                    line=line,
                    remedy=f"did you mean {near!r}?" if near else _REMEDY,
                )

    def apply(self, row: Mapping[str, object], number: int, shown: Path | str, line: int | None) -> dict[str, object]:
        """A row by the names that cases have; `number` counts rows from 1. The row has all `columns`.

        Raises InputError for a path that leads to nothing in this row.
        """
        try:
            return self._applied(row, number)
        except LookupError as error:
            place = "" if line is not None else f"row {number}: "
            raise InputError(f"{place}{error.args[0]}", file=shown, line=line, remedy=_REMEDY) from None

    def _applied(self, row: Mapping[str, object], number: int) -> dict[str, object]:
        taken = {source for source in self.of.values() if _is_column(source)}
        rest = {
            f"column.{name}" if name in self.of else name: value for name, value in row.items() if name not in taken
        }
        made = {name: _value(source, row, number) for name, source in self.of.items()}
        return {**rest, **made}


def _is_column(source: str) -> bool:
    return source != NUMBERED and "{" not in source


def _columns_of(source: str) -> list[str]:
    if source == NUMBERED:
        return []
    if _is_column(source):
        return [source]
    return [match[1] for match in _PLACE.finditer(source) if match[1] is not None]


def _value(source: str, row: Mapping[str, object], number: int) -> object:
    if source == NUMBERED:
        return str(number)
    if _is_column(source):
        return _inside(row, source)

    def filled(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        value = _inside(row, match[1])
        return "" if value is None else str(value)

    return _PLACE.sub(filled, source)


def _inside(row: Mapping[str, object], path: str) -> object:
    """A column, or what a path leads to inside one. Raises LookupError with a clause."""
    if path in row:
        return row[path]
    column, *steps = path.split(".")
    value, way = row[column], column
    for step in steps:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, Sequence) and not isinstance(value, str) and _is_of(step, len(value)):
            value = value[int(step)]
        else:
            raise LookupError(f"has nothing at {path!r}, which `fields` names: {way!r} has no {step!r}")
        way = f"{way}.{step}"
    return value


def _is_of(step: str, many: int) -> bool:
    """Whether it counts one of so many, from 0. Python reads no number of thousands of digits."""
    return step.isdecimal() and len(step) <= len(str(many)) and int(step) < many
