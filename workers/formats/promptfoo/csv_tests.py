"""A CSV file of tests: a row a test, its columns variables; `__expected…` are assertions in short."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from workers.formats.assertions import RUBRIC
from workers.formats.promptfoo.written import Rows, Source, Written
from workers.rows import read_text

__all__ = ["csv_tests"]

_EXPECTED: Final = re.compile(r"([a-z-]+)(?:\(([0-9.]+)\))?:\s*(.*)", re.DOTALL)


def csv_tests(path: Path) -> Iterator[Written]:
    """Each row as a mapping, as a test is written in YAML. Raises InputError."""
    source = Rows(path)
    reader = csv.reader(io.StringIO(read_text(path, path), newline=""), strict=True)
    try:
        header = next(reader, [])
        line = reader.line_num + 1
        for cells in reader:
            if cells:
                if len(cells) != len(header):
                    raise source.wrong((line,), f"has {len(cells)} cells, the header has {len(header)}")
                yield Written(source, (line,), _of_row(source, line, list(zip(header, cells, strict=True))))
            line = reader.line_num + 1
    except csv.Error as error:
        raise source.wrong((reader.line_num,), f"invalid CSV: {error}") from None


def _of_row(source: Source, line: int, cells: Sequence[tuple[str, str]]) -> dict[str, object]:
    test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}}
    for name, cell in cells:
        if name == "__description":
            test["description"] = cell
        elif name == "__threshold":
            try:
                test["threshold"] = float(cell)
            except ValueError:
                raise source.wrong((line, name), f"{cell!r} is no number") from None
        elif name.startswith("__metadata:"):
            test["metadata"][name.partition(":")[2]] = cell
        elif re.fullmatch(r"__expected\d*", name):
            if cell.strip():
                test["assert"].append(_short(cell.strip()))
        elif name.startswith("__"):
            raise source.wrong((line, name), "a column of this name is not supported")
        else:
            test["vars"][name] = cell
    return test


def _short(text: str) -> dict[str, object]:
    """`contains: Paris`, `levenshtein(3): Paris`; what names no type is `equals`."""
    if text in ("is-json", "contains-json", "not-is-json", "not-contains-json"):
        return {"type": text}
    found = _EXPECTED.fullmatch(text)
    if found is None:
        return {"type": "equals", "value": text}
    kind = {"grade": RUBRIC, "fn": "javascript", "eval": "javascript"}.get(found[1], found[1])
    value: object = found[3]
    if kind.removeprefix("not-").startswith(("contains-a", "icontains-a")):
        value = [one.strip() for one in found[3].split(",") if one.strip()]
    threshold = {"threshold": float(found[2])} if found[2] else {}
    return {"type": kind, "value": value, **threshold}
