"""Where tests are written: in the configuration, or in YAML, JSON, JSON lines or CSV files that it names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from workers.formats.promptfoo.csv_tests import csv_tests
from workers.formats.promptfoo.written import Rows, Written
from workers.formats.yaml_file import YamlFile
from workers.rows import read_text

__all__ = ["each_test"]


def each_test(tests: Written) -> Iterator[Written]:
    """Tests one by one, files followed. Raises InputError."""
    if isinstance(tests.value, str):
        yield from _of_file(tests, tests.value)
    elif isinstance(tests.value, list):
        for number, value in enumerate(tests.value):
            one = tests.below(number, value)
            if isinstance(value, str):
                yield from _of_file(one, value)
            else:
                yield one
    else:
        raise tests.wrong("must be a list of tests, or name a file")


def _of_file(tests: Written, named: str) -> Iterator[Written]:
    name = named.removeprefix("file://")
    paths = sorted(tests.file("").glob(name)) if "*" in name else [tests.file(name)]
    if not paths or not all(path.is_file() for path in paths):
        raise tests.wrong(f"no file {name}")
    for path in paths:
        match path.suffix.lower():
            case ".yaml" | ".yml" | ".json":
                file = YamlFile(path)
                listed = file.value if isinstance(file.value, list) else [file.value]
                yield from (Written(file, (number,), one) for number, one in enumerate(listed))
            case ".jsonl":
                yield from _json_lines(path)
            case ".csv":
                yield from csv_tests(path)
            case suffix:
                problem = f"tests from a file ending in {suffix!r} are not supported"
                raise tests.wrong(problem, "use .yaml, .json, .jsonl or .csv")


def _json_lines(path: Path) -> Iterator[Written]:
    source = Rows(path)
    for line, text in enumerate(read_text(path, path).split("\n"), start=1):
        if text.strip():
            try:
                yield Written(source, (line,), json.loads(text))
            except (ValueError, RecursionError) as error:
                raise source.wrong((line,), f"invalid JSON: {error}") from None
