"""What is wrong with a suite, in one line: pydantic's findings as a person would say them.

A validation error lists everything that it found, names Python types, and quotes whole tables. The reader of
a suite file wants the first thing to change: which field, what is wrong with it, what was probably meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from bus.nearest import nearest
from workers.tables import Table

__all__ = ["Complaint", "complain"]

_SAID: Final = {
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "too_short": "must not be empty",
    "model_type": "must be a table",
}
_WRITE: Final = {
    "cases": 'write cases = "cases.jsonl"',
    "solver": 'write solver = {python = "agent.py:solve"}, or {command = ["…"]}',
    "scorer": 'write scorer = {kind = "exact"}, or another kind',
}
"""What every suite has, and a first one often in another form."""


@dataclass(frozen=True, slots=True)
class Complaint:
    """`problem` names the field first, as in `solver.python: …`; `remedy` is what to do, where known."""

    problem: str
    remedy: str | None = None


def complain(error: ValidationError) -> Complaint:
    """The first thing to change. Unknown fields come first: one that is misspelt is missing, too."""
    found = error.errors(include_url=False)
    first = next((detail for detail in found if detail["type"] == "extra_forbidden"), found[0])
    # A table that a Python suite builds by itself knows only its own fields: its name is put before them.
    own = next((table.table for table in _tables() if table.__name__ == error.title), "")
    where = [*([own] if own else []), *first["loc"]]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).removeprefix(".")
    place = f"{field}: " if field else ""
    match first["type"]:
        case "extra_forbidden":
            return _unknown_field(field, where)
        case "missing":
            return Complaint(f"{place}is missing", _WRITE.get(field))
        case "literal_error":
            choices = re.findall(r"'([^']*)'", str(first.get("ctx", {}).get("expected")))
            known = f"one of {', '.join(choices)}"
            near = nearest(str(first["input"]), choices)
            meant = f"did you mean {near!r}? it is {known}" if near else known
            return Complaint(f"{place}unknown {where[-1]} {first['input']!r}", meant)
        case "value_error":
            return Complaint(f"{place}{first['msg'].removeprefix('Value error, ')}")
        case _:
            return Complaint(f"{place}{_said(first)}", _WRITE.get(field))


def _unknown_field(field: str, where: list[int | str]) -> Complaint:
    table = next(table for table in _tables() if _stands(table.table.split("."), [str(part) for part in where[:-1]]))
    known = [info.alias or name for name, info in table.model_fields.items()]
    near = nearest(str(where[-1]), known)
    return Complaint(f"{field}: unknown field", f"did you mean {near!r}?" if near else f"known: {', '.join(known)}")


def _stands(table: list[str], where: list[str]) -> bool:
    """Whether a table, such as `tools.<name>`, stands at a place. The suite itself is called by no name."""
    same = [own in (part, "<name>") for own, part in zip(table, where or [""], strict=False)]
    return len(table) == len(where or [""]) and all(same)


def _said(detail: ErrorDetails) -> str:
    given, limits = detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "greater_than_equal":
            return f"must be at least {_number(limits['ge'])}, it is {given!r}"
        case "less_than_equal":
            return f"must be at most {_number(limits['le'])}, it is {given!r}"
        case kind if kind in _SAID:
            empty = _SAID[kind].endswith("empty")
            return _SAID[kind] if empty else f"{_SAID[kind]}, it is {given!r}"
    return detail["msg"].replace("Input should be", "must be", 1)


def _number(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def _tables() -> list[type[Table]]:
    found = [Table]
    for table in found:
        found += table.__subclasses__()
    return found[1:]
