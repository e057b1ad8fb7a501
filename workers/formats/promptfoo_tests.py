"""The tests of a promptfoo configuration: written in it, or in YAML, JSON, JSON lines or CSV files that it names."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from bus.errors import InputError
from workers.formats.assertions import RUBRIC, check
from workers.formats.yaml_file import Place, YamlFile
from workers.rows import read_text

__all__ = ["Filled", "Source", "Test", "Tests"]

Filled = Callable[[str, Mapping[str, object]], str]
"""Fills a template in. Raises ValueError with a clause."""

_KNOWN: Final = frozenset({"description", "vars", "assert", "options", "threshold", "metadata"})
_MOST: Final = 10_000  # combinations of one test's variables
_EXPECTED: Final = re.compile(r"([a-z-]+)(?:\(([0-9.]+)\))?:\s*(.*)", re.DOTALL)


class Source(Protocol):
    """A file that knows where its values stand."""

    @property
    def path(self) -> Path:
        """Itself."""

    def wrong(self, place: Place, problem: str, remedy: str | None = None) -> InputError:
        """The error for a value of it."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """A file of rows: the first part of a place is the row's line."""

    path: Path

    def wrong(self, place: Place, problem: str, remedy: str | None = None) -> InputError:
        line = place[0] if place and isinstance(place[0], int) else None
        told = "".join(f"{part}: " for part in place[1:2])
        return InputError(f"{told}{problem}", file=self.path, line=line, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Test:
    """One test, defaults merged in, not filled in yet."""

    __test__ = False  # not one of pytest's

    source: Source
    place: Place
    number: int
    """From 1, over all tests."""
    description: str
    variants: Sequence[Mapping[str, object]]
    """Its variables: one mapping, or one for each combination of those that are lists."""
    assertions: Sequence[tuple[Place, Mapping[str, Any]]]
    threshold: float | None
    metadata: Mapping[str, object]
    judge: str
    """Who judges its rubric; empty when it does not say."""
    fill: Filled

    @property
    def rubric(self) -> str | None:
        """What a model is to judge by; None when no model is to."""
        return next((str(one.get("value", "")) for _, one in self.assertions if one["type"] == RUBRIC), None)

    def rubric_for(self, variables: Mapping[str, object]) -> str:
        """The same, filled in. Raises InputError."""
        place, one = self.assertions[0]
        return str(self._filled(place, one.get("value"), variables))

    def asserted(self, variables: Mapping[str, object]) -> list[dict[str, object]]:
        """Its assertions, filled in and checked. Raises InputError."""
        made = []
        for place, one in self.assertions:
            filled = {**one}
            if "value" in one and not one["type"].endswith("python"):
                filled["value"] = self._filled(place, one["value"], variables)
            if one["type"] != RUBRIC and (wrong := check(filled)) is not None:
                raise self.source.wrong(place, wrong)
            made.append(filled)
        return made

    def _filled(self, place: Place, value: object, variables: Mapping[str, object]) -> object:
        if isinstance(value, list):
            return [self._filled(place, one, variables) for one in value]
        if not isinstance(value, str):
            return value
        try:
            return self.fill(value, variables)
        except ValueError as error:
            raise self.source.wrong(place, str(error)) from None


@dataclass
class Tests:
    """Reads them. `files` has what they name and the suite needs, afterwards."""

    __test__ = False

    file: YamlFile
    fill: Filled
    files: dict[str, str] = field(default_factory=dict)

    def all(self, written: object, default: object) -> list[Test]:
        """Every test, in order. Raises InputError."""
        defaults = self._mapping(self.file, ("defaultTest",), default)
        if "vars" in defaults and not isinstance(defaults["vars"], Mapping):
            raise self.file.wrong(("defaultTest", "vars"), "must be a mapping")
        if written is None:
            raise self.file.wrong((), "has no tests", "an evaluation needs something that is asserted")
        found: list[Test] = []
        for source, place, test in self._written(self.file, ("tests",), written):
            found.append(self._test(source, place, len(found) + 1, test, defaults))
        if not found:
            raise self.file.wrong(("tests",), "there is no test")
        return found

    def _written(self, source: Source, place: Place, written: object) -> Iterator[tuple[Source, Place, object]]:
        """Tests one by one, files followed."""
        if isinstance(written, str):
            yield from self._of_file(source, place, written)
        elif isinstance(written, list):
            for number, one in enumerate(written):
                if isinstance(one, str):
                    yield from self._of_file(source, (*place, number), one)
                else:
                    yield source, (*place, number), one
        else:
            raise source.wrong(place, "must be a list of tests, or name a file")

    def _of_file(self, source: Source, place: Place, named: str) -> Iterator[tuple[Source, Place, object]]:
        name = named.removeprefix("file://")
        paths = sorted(source.path.parent.glob(name)) if "*" in name else [source.path.parent / name]
        if not paths or not all(path.is_file() for path in paths):
            raise source.wrong(place, f"no file {name}")
        for path in paths:
            match path.suffix.lower():
                case ".yaml" | ".yml" | ".json":
                    file = YamlFile(path)
                    listed = file.value if isinstance(file.value, list) else [file.value]
                    yield from ((file, (number,), one) for number, one in enumerate(listed))
                case ".jsonl":
                    yield from _json_lines(path)
                case ".csv":
                    yield from _csv_tests(path)
                case suffix:
                    raise source.wrong(place, f"tests from a file ending in {suffix!r} are not supported",
                                       "use .yaml, .json, .jsonl or .csv")  # fmt: skip

    def _test(self, source: Source, place: Place, number: int, written: object, defaults: Mapping[str, Any]) -> Test:
        test = self._mapping(source, place, written)
        options = {**defaults.get("options", {}), **test.get("options", {})}
        variables = {**defaults.get("vars", {}), **self._variables(source, (*place, "vars"), test.get("vars") or {})}
        assertions = [*self._assertions(source, (*place, "assert"), test.get("assert"))]
        assertions += self._assertions(self.file, ("defaultTest", "assert"), defaults.get("assert"))
        if not assertions:
            raise source.wrong(place, "asserts nothing, and would always pass", "add an assertion")
        rubrics = [one for _, one in assertions if one["type"] == RUBRIC]
        if rubrics and len(assertions) > 1:
            raise source.wrong(place, f"{RUBRIC} beside another assertion is not supported: a run has one judge")
        threshold = test.get("threshold", defaults.get("threshold"))
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
            raise source.wrong((*place, "threshold"), "must be a number")
        judge = (rubrics[0].get("provider") if rubrics else None) or options.get("provider") or ""
        if judge and not (rubrics and isinstance(judge, str)):
            raise source.wrong((*place, "options", "provider"), "is only supported as text, for llm-rubric")
        return Test(
            source=source,
            place=place,
            number=number,
            description=str(test.get("description", "")),
            variants=self._variants(source, (*place, "vars"), variables, options),
            assertions=assertions,
            threshold=threshold,
            metadata={**defaults.get("metadata", {}), **test.get("metadata", {})},
            judge=judge,
            fill=self.fill,
        )

    def _mapping(self, source: Source, place: Place, written: object) -> Mapping[str, Any]:
        if written is None:
            return {}
        if not isinstance(written, Mapping):
            raise source.wrong(place, "must be a mapping")
        if unknown := sorted(map(str, written.keys() - _KNOWN)):
            raise source.wrong((*place, unknown[0]), "of a test is not supported")
        for name in ("options", "metadata"):
            if not isinstance(written.get(name) or {}, Mapping):
                raise source.wrong((*place, name), "must be a mapping")
        if others := sorted((written.get("options") or {}).keys() - {"provider", "disableVarExpansion"}):
            raise source.wrong((*place, "options", others[0]), "is not supported")
        return {name: value for name, value in written.items() if value is not None}

    def _variables(self, source: Source, place: Place, written: object) -> dict[str, object]:
        if not isinstance(written, Mapping):
            raise source.wrong(place, "must be a mapping")
        return {name: self._variable(source, (*place, name), value) for name, value in written.items()}

    def _variable(self, source: Source, place: Place, value: object) -> object:
        if not isinstance(value, str) or not value.startswith("file://"):
            return value
        path = source.path.parent / value.removeprefix("file://")
        if not path.is_file():
            raise source.wrong(place, f"no file {value.removeprefix('file://')}")
        match path.suffix.lower():
            case ".yaml" | ".yml" | ".json":
                return YamlFile(path).value
            case ".txt" | ".md" | ".csv" | ".html" | ".xml":
                return read_text(path, path)
            case suffix:
                raise source.wrong(place, f"a variable from a file ending in {suffix!r} is not supported")

    def _variants(
        self, source: Source, place: Place, variables: Mapping[str, object], options: Mapping[str, object]
    ) -> list[Mapping[str, object]]:
        lists = {name: value for name, value in variables.items() if isinstance(value, list)}
        if options.get("disableVarExpansion") or not lists:
            combined: list[Mapping[str, object]] = [variables]
        else:
            count = 1
            for value in lists.values():
                count *= len(value)
            if not 0 < count <= _MOST:
                raise source.wrong(place, f"makes {count:,} combinations, from 1 to {_MOST:,} are possible")
            choices = itertools.product(*lists.values())
            combined = [{**variables, **dict(zip(lists, chosen, strict=True))} for chosen in choices]
        return [self._nested(source, place, one) for one in combined]

    def _nested(self, source: Source, place: Place, variables: Mapping[str, object]) -> Mapping[str, object]:
        """Variables that are templates of others, filled in."""
        made = dict(variables)
        for name, value in variables.items():
            if isinstance(value, str) and ("{{" in value or "{%" in value):
                try:
                    made[name] = self.fill(value, {other: one for other, one in variables.items() if other != name})
                except ValueError as error:
                    raise source.wrong((*place, name), str(error)) from None
        return made

    def _assertions(self, source: Source, place: Place, written: object) -> list[tuple[Place, Mapping[str, Any]]]:
        if written is None:
            return []
        if not isinstance(written, list):
            raise source.wrong(place, "must be a list of assertions")
        found: list[tuple[Place, Mapping[str, Any]]] = []
        for number, one in enumerate(written):
            at = (*place, number)
            if not isinstance(one, Mapping) or not isinstance(one.get("type"), str):
                raise source.wrong(at, "needs a type")
            if one["type"] == RUBRIC:
                if unknown := sorted(one.keys() - {"type", "value", "metric", "provider"}):
                    raise source.wrong((*at, unknown[0]), f"of {RUBRIC} is not supported")
                if not isinstance(one.get("value"), str) or not one["value"].strip():
                    raise source.wrong(at, f"{RUBRIC} needs a text as its value")
            elif (wrong := check(one)) is not None:
                raise source.wrong(at, wrong)
            value = one.get("value")
            if isinstance(value, str) and value.startswith("file://"):
                self._keep(source, at, value)
            found.append((at, one))
        return found

    def _keep(self, source: Source, place: Place, named: str) -> None:
        """A function's file comes with the suite."""
        name = named.removeprefix("file://").partition(":")[0]
        path = source.path.parent / name
        if not name.endswith(".py"):
            raise source.wrong(place, f"{named!r} is not supported", "only Python files, file://NAME.py[:FUNCTION]")
        if not path.is_file() or "/" in name or name in ("scorer.py",):
            raise source.wrong(place, f"no file {name} beside it that could come along")
        self.files[name] = read_text(path, path)


def _json_lines(path: Path) -> Iterator[tuple[Source, Place, object]]:
    source = _Rows(path)
    for line, text in enumerate(read_text(path, path).split("\n"), start=1):
        if text.strip():
            try:
                yield source, (line,), json.loads(text)
            except (ValueError, RecursionError) as error:
                raise source.wrong((line,), f"invalid JSON: {error}") from None


def _csv_tests(path: Path) -> Iterator[tuple[Source, Place, object]]:
    """A row a test: columns are variables, `__expected…` are assertions in short."""
    source = _Rows(path)
    reader = csv.reader(io.StringIO(read_text(path, path), newline=""), strict=True)
    try:
        header = next(reader, [])
        line = reader.line_num + 1
        for cells in reader:
            if cells:
                if len(cells) != len(header):
                    raise source.wrong((line,), f"has {len(cells)} cells, the header has {len(header)}")
                yield source, (line,), _of_row(source, line, list(zip(header, cells, strict=True)))
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
