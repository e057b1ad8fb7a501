"""The cases of a suite.

A data set is the denominator of every number that a batch shows. A row that is skipped, read twice, or read
with its target missing moves a pass rate without a trace; so the first row that is not a case stops the suite,
with its file and line.

    id        text, unique in the suite; a whole number is read as its decimal text
    input     what the solver is asked: text, or any JSON value; empty when left out
    target    what the scorer compares with: text, a number, a list of them; null when left out
    metadata  an object for the suite's own use
    must_pass true for a case that the gate lets no batch pass without; it is an entry of the metadata too

CSV and Parquet have a column for each of these; their further columns are entries of `metadata`. Where columns have
other names, the suite's `fields` says which is which (`workers.field_map`).
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Final, TypeAlias

from bus.errors import InputError
from bus.nearest import nearest
from workers.field_map import FieldMap
from workers.rows import Row, kind_of, read_rows

__all__ = ["MAX_ID", "Case", "Json", "cases_from_tables", "check_id", "read_cases"]

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
Trouble: TypeAlias = Callable[[Json], "str | None"]
"""What is wrong with a target, as one clause; None when nothing is."""

MAX_ID: Final = 200
"""Bytes of UTF-8. An id is a part of keys, of directory names, and of every line that names a run."""

_DEFAULTS: Final[Mapping[str, object]] = {"id": None, "input": "", "target": None, "metadata": None}
_ELSEWHERE: Final[Mapping[str, Sequence[str]]] = {
    "target": ("expected", "answer", "output", "label", "ideal", "reference", "solution", "gold"),
    "input": ("question", "prompt", "query", "text", "instruction"),
}
_FLOOR: Final = "must_pass"
_YES, _NO = (True, "true", "1"), (False, None, "", "false", "0")


@dataclass(frozen=True, slots=True)
class Case:
    """One sample of the data set."""

    id: str
    input: Json = ""
    target: Json = None
    metadata: Mapping[str, Json] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """The input as text: itself, or its JSON when it is not text."""
        return self.input if isinstance(self.input, str) else json.dumps(self.input, ensure_ascii=False)

    @property
    def must_pass(self) -> bool:
        """Whether the gate asks for every run of it. A column of a CSV file says so as text."""
        return _spelt(self.metadata.get(_FLOOR)) in _YES


def read_cases(
    path: Path,
    shown: Path | str | None = None,
    fields: Mapping[str, str] | None = None,
    trouble: Trouble | None = None,
) -> tuple[Case, ...]:
    """Read a `.jsonl`, `.csv` or `.parquet` file of at least one case. Raises `InputError`.

    `shown` is the file's name in messages; `path` itself when it is left out. `fields`: see `workers.field_map`.
    `trouble`: what the scorer has against a target; by default nothing.
    """
    shown = path if shown is None else shown
    return _cases(read_rows(path, shown, FieldMap(fields or {})), shown, trouble)


def cases_from_tables(
    tables: Iterable[Mapping[str, object]], shown: Path | str, trouble: Trouble | None = None
) -> tuple[Case, ...]:
    """Cases that stand in the suite file itself, at least one. Raises `InputError` naming `cases[N]`."""
    return _cases((Row(table, f"cases[{number}]") for number, table in enumerate(tables)), shown, trouble)


def check_id(case_id: str) -> str | None:
    """What is wrong with a case id, as a clause; None when nothing is.

    A `#` is allowed, although it parts a run id's case from its trial: the last one counts.
    """
    if not case_id:
        return "is empty"
    try:
        size = len(case_id.encode())
    except UnicodeEncodeError:
        return "is not valid Unicode (a lone surrogate)"
    if size > MAX_ID:
        return f"is {size} bytes long, the most is {MAX_ID}"
    if ":" in case_id:
        return "holds a ':', which parts the keys on the server"
    if case_id != case_id.strip():
        return "begins or ends with a blank"
    if not case_id.isprintable():
        return "holds a control or invisible character"
    return None


def _cases(rows: Iterable[Row], shown: Path | str, trouble: Trouble | None) -> tuple[Case, ...]:
    cases: list[Case] = []
    places: dict[str, str] = {}
    first: InputError | None = None  # told when all rows are cases: what is none comes before what cannot be judged
    for row in rows:
        case = _case(row, shown)
        if case.id in places:
            raise _wrong(
                row,
                shown,
                f"two cases have the id {case.id!r}, the first is {places[case.id]}",
                "give each case its own; repeats of a case are made with `trials`",
            )
        places[case.id] = row.place
        cases.append(case)
        if trouble is not None and first is None and (problem := trouble(case.target)) is not None:
            remedy = _targets(row) if case.target is None else None
            first = _wrong(row, shown, f"{case.id}: {problem}", remedy)
    if not cases:
        raise InputError("holds no case", file=shown, remedy="a suite needs at least one")
    if first is not None:
        raise first
    return tuple(cases)


def _targets(row: Row) -> str:
    """Where the target of a case without one may stand, or who needs none."""
    columns = row.fields.get("metadata")
    found = [name for name in columns if name.lower() in _ELSEWHERE["target"]] if isinstance(columns, Mapping) else []
    if found:
        return f'in the suite: fields = {{ target = "{found[0]}" }}'
    return 'give each case a target, or name a scorer that needs none: a command, "python" or "model"'


def _elsewhere(name: str, row: Row) -> str:
    """What is the case's own, and under which name other tools have it."""
    meant = next((field for field, names in _ELSEWHERE.items() if name.lower() in names), None)
    own = "put what is your own into metadata"
    return own if meant is None or meant in row.fields else f'{own}, or in the suite: fields = {{ {meant} = "{name}" }}'


def _case(row: Row, shown: Path | str) -> Case:
    for name in row.fields:
        if name not in _DEFAULTS and name != _FLOOR:
            near = nearest(str(name), _DEFAULTS)
            hint = f"did you mean {near!r}?" if near else _elsewhere(str(name), row)
            raise _wrong(row, shown, f"unknown field {name!r}", hint)
    case_id = row.fields.get("id")
    if case_id is None or case_id == "":
        raise _wrong(row, shown, "a case without id", "every case needs an id of its own")
    if isinstance(case_id, int) and not isinstance(case_id, bool):
        case_id = str(case_id)
    if not isinstance(case_id, str):
        raise _wrong(row, shown, f"id: {case_id!r} is not text")
    if (trouble := check_id(case_id)) is not None:
        raise _wrong(row, shown, f"id: {case_id!r} {trouble}")
    metadata = _field(row, shown, "metadata")
    if metadata is not None and not isinstance(metadata, Mapping):
        raise _wrong(row, shown, f"metadata: is not an object but {kind_of(metadata)}")
    if _FLOOR in row.fields:
        metadata = {**(metadata or {}), _FLOOR: _plain(row.fields[_FLOOR])}
    if metadata and _spelt(floor := metadata.get(_FLOOR)) not in (*_YES, *_NO):
        raise _wrong(row, shown, f"must_pass: {floor!r} is neither true nor false")
    return Case(case_id, _field(row, shown, "input"), _field(row, shown, "target"), metadata or {})


def _spelt(value: Json) -> Json:
    return value.strip().lower() if isinstance(value, str) else value


def _field(row: Row, shown: Path | str, name: str) -> Json:
    try:
        return _plain(row.fields.get(name, _DEFAULTS[name]))
    except ValueError as error:
        raise _wrong(row, shown, f"{name}: {error}") from None
    except RecursionError:
        raise _wrong(row, shown, f"{name}: is nested too deep") from None


def _plain(value: object) -> Json:
    """The value as JSON has it. Raises `ValueError` with a clause for what no JSON can hold.

    Data frames write a missing value as NaN, so NaN is null; dates and decimals become their text.
    """
    match value:
        case None | bool() | int():
            return value
        case float():
            if math.isinf(value):
                raise ValueError("is infinite")
            return None if math.isnan(value) else value
        case str():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError("is not valid Unicode (a lone surrogate)") from None
            return value
        case list() | tuple():
            return [_plain(item) for item in value]
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case datetime.date() | datetime.time():
            return value.isoformat()
        case Decimal():
            return str(value)
    raise ValueError(f"is of the type {type(value).__name__}, which JSON cannot hold")


def _wrong(row: Row, shown: Path | str, problem: str, remedy: str | None = None) -> InputError:
    """The error for a row: its line where the file has lines, else its place inside the message."""
    place = "" if row.line is not None else f"{row.place}: "
    return InputError(f"{place}{problem}", file=shown, line=row.line, remedy=remedy)
