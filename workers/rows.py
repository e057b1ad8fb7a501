"""The rows of a data file: JSON lines, CSV (`.tsv`: with tabs) or Parquet, each row with the place where it stands.

Nothing is guessed and nothing is skipped: what cannot be read as a row is an `InputError` with file and line.
What a row has to hold is not decided here (`workers.cases`).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bus.errors import InputError
from bus.nearest import nearest
from workers.field_map import FieldMap

__all__ = ["Row", "kind_of", "read_rows", "read_text"]

MAX_CELL: Final = 2**27
"""Characters of one CSV cell. The csv module stops at 128 kB by itself, less than one long prompt."""

_COLUMNS: Final = ("id", "input", "target")
_AS_THEY_ARE: Final = FieldMap()


@dataclass(frozen=True, slots=True)
class Row:
    """What was read, and where: `place` as in a sentence ("line 3"), `line` where the file has lines."""

    fields: Mapping[str, object]
    place: str
    line: int | None = None


def read_rows(path: Path, shown: Path | str, fields: FieldMap = _AS_THEY_ARE) -> Iterator[Row]:
    """The rows of a `.jsonl`, `.csv`, `.tsv` or `.parquet` file, by the names that cases have, as `fields` says.

    Raises `InputError`; `shown` is the file's name in there.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            f"cases cannot be read from a file ending in {path.suffix!r}",
            file=shown,
            remedy="use .jsonl (one JSON object a line), .csv, .tsv or .parquet",
        )
    if not path.is_file():
        raise InputError("is not a file" if path.exists() else "no such file", file=shown)
    return reader(path, shown, fields)


def read_text(path: Path, shown: Path | str) -> str:
    """A whole UTF-8 file, without its byte order mark. Raises `InputError` with the line of a bad byte."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=shown) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        bad, line = data[error.start], data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"is not UTF-8 text (byte 0x{bad:02x})", file=shown, line=line, remedy="save it as UTF-8"
        ) from None


def kind_of(value: object) -> str:
    """A JSON value's kind as in a sentence: "a list"."""
    if value is None:
        return "null"
    return {dict: "an object", list: "a list", str: "text", bool: "a boolean"}.get(type(value), "a number")


# --- JSON lines -------------------------------------------------------------------------------------------


def _json_rows(path: Path, shown: Path | str, fields: FieldMap) -> Iterator[Row]:
    count = 0
    # Not splitlines(): it also cuts at U+2028 and its kind, which JSON allows inside text.
    for number, line in enumerate(read_text(path, shown).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            value = _parse(line)
        except ValueError as error:
            remedy = "each line is one JSON object"
            raise InputError(f"invalid JSON: {error}", file=shown, line=number, remedy=remedy) from None
        if not isinstance(value, dict):
            problem = f"each line is one JSON object, this is {kind_of(value)}"
            raise InputError(problem, file=shown, line=number)
        count += 1
        if fields.of:
            fields.check(list(value), shown, number)
            value = _from_columns(fields.apply(value, count, shown, number), shown, number)
        yield Row(value, f"line {number}", number)


def _parse(text: str) -> object:
    """JSON to the letter: no NaN, no field twice. Raises `ValueError` with a clause."""
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {_first_twice(names)!r} is given twice")
    return made


def _first_twice(names: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


# --- CSV --------------------------------------------------------------------------------------------------


def _csv_rows(path: Path, shown: Path | str, fields: FieldMap) -> Iterator[Row]:
    limit = csv.field_size_limit(MAX_CELL)
    sign = "\t" if path.suffix.lower() == ".tsv" else ","
    reader = csv.reader(io.StringIO(read_text(path, shown), newline=""), delimiter=sign, strict=True)
    try:
        header = next(reader, None)
        if header is None:
            return
        _check_sign(header, sign, shown, fields)
        _check_columns(header, shown, fields, line=1)
        line, count = reader.line_num + 1, 0
        for cells in reader:
            if cells and len(cells) != len(header):
                raise InputError(
                    f"has {len(cells)} cells, the header has {len(header)}",
                    file=shown,
                    line=line,
                    remedy=f"quote cells that hold a {'tab' if sign != ',' else 'comma'} or a line break",
                )
            if cells:
                count += 1
                row = fields.apply(dict(zip(header, cells, strict=True)), count, shown, line)
                yield Row(_from_columns(row, shown, line), f"line {line}", line)
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"invalid CSV: {error}", file=shown, line=reader.line_num) from None
    finally:
        csv.field_size_limit(limit)


def _check_sign(header: Sequence[str], sign: str, shown: Path | str, fields: FieldMap) -> None:
    if len(header) != 1 or header[0] in ("id", *fields.columns()):
        return
    between = next((each for each in ";\t|," if each in header[0]), None)
    if between is not None:
        remedy = "call it .tsv" if between == "\t" else "save it with " + ("commas" if sign == "," else "tabs")
        problem = f"has one column, {header[0]!r}: its cells are parted by {between!r}"
        raise InputError(problem, file=shown, line=1, remedy=remedy)


def _check_columns(names: Sequence[str], shown: Path | str, fields: FieldMap, line: int | None) -> None:
    fields.check(names, shown, line)
    if "id" not in (*names, *fields.of):
        near = nearest("id", [name.strip().lower() for name in names])
        have = ", ".join(repr(name) for name in names[:8]) or "none"
        raise InputError(
            f"has no column 'id' (it has {have})",
            file=shown,
            line=line,
            remedy="write the name as id" if near else 'every case needs an id of its own: fields = { id = "COLUMN" }',
        )
    if (twice := _first_twice(names)) is not None:
        raise InputError(f"has two columns {twice!r}", file=shown, line=line)


def _from_columns(row: Mapping[str, object], shown: Path | str, line: int | None) -> dict[str, object]:
    """Columns to the fields of a case: a further column is an entry of its metadata."""
    fields: dict[str, object] = {name: row[name] for name in _COLUMNS if name in row}
    metadata = {name: value for name, value in row.items() if name not in (*_COLUMNS, "metadata")}
    own = row.get("metadata")
    if isinstance(own, str) and own.strip():
        try:
            own = _parse(own)
        except ValueError as error:
            raise InputError(f"metadata: invalid JSON: {error}", file=shown, line=line) from None
    if own is not None and own != "":
        if not isinstance(own, dict):
            raise InputError(f"metadata: is not an object but {kind_of(own)}", file=shown, line=line)
        metadata.update(own)
    return {**fields, "metadata": metadata}


# --- Parquet ----------------------------------------------------------------------------------------------


def _parquet_rows(path: Path, shown: Path | str, fields: FieldMap) -> Iterator[Row]:
    try:
        # Imported here: it is an extra, and takes longer to load than all the rest.
        import pyarrow  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise InputError("reading Parquet needs pyarrow", file=shown, remedy="pip install 'evalbus[parquet]'") from None
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            _check_columns(file.schema_arrow.names, shown, fields, line=None)
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    number += 1
                    yield Row(_from_columns(fields.apply(row, number, shown, None), shown, None), f"row {number}")
    except (pyarrow.ArrowException, OSError) as error:
        what = f"is damaged after row {number}" if number else "is not a Parquet file"
        raise InputError(f"{what}: {str(error).splitlines()[0].rstrip('.')}", file=shown) from None


_READERS: Final[Mapping[str, Callable[[Path, Path | str, FieldMap], Iterator[Row]]]] = {
    ".jsonl": _json_rows,
    ".csv": _csv_rows,
    ".tsv": _csv_rows,
    ".parquet": _parquet_rows,
}
