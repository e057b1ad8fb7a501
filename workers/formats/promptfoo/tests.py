"""The tests of a promptfoo configuration: checked, and the defaults of all merged into each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from workers.formats.assertions import RUBRIC, check
from workers.formats.promptfoo.reading import each_test
from workers.formats.promptfoo.variables import Fill, Variables, combinations, variables_of
from workers.formats.promptfoo.written import Written
from workers.formats.yaml_file import YamlFile
from workers.rows import read_text

__all__ = ["Assertion", "Test", "Tests"]

_KNOWN: Final = frozenset({"description", "vars", "assert", "options", "threshold", "metadata"})


@dataclass(frozen=True, slots=True)
class Assertion:
    """One assertion, not filled in yet: its `type` is one that is supported."""

    written: Written
    fields: Mapping[str, Any]

    @property
    def type(self) -> str:
        """What is asserted, such as `contains`."""
        return str(self.fields["type"])

    def filled(self, name: str, variables: Variables, fill: Fill) -> object:
        """One of its fields, every text in it filled in. Raises InputError."""
        return self._filled(self.fields.get(name), variables, fill)

    def _filled(self, value: object, variables: Variables, fill: Fill) -> object:
        if isinstance(value, list):
            return [self._filled(one, variables, fill) for one in value]
        if not isinstance(value, str):
            return value
        try:
            return fill(value, variables)
        except ValueError as error:
            raise self.written.wrong(str(error)) from None


@dataclass(frozen=True, slots=True)
class Test:
    """One test, defaults merged in, not filled in yet."""

    __test__ = False  # not one of pytest's

    written: Written
    number: int
    """From 1, over all tests."""
    description: str
    variants: Sequence[Variables]
    """Its variables: one mapping, or one for each combination of those that are lists."""
    assertions: Sequence[Assertion]
    threshold: float | None
    metadata: Mapping[str, object]
    judge: str
    """Who judges its rubric; empty when it does not say."""
    fill: Fill

    @property
    def has_rubric(self) -> bool:
        """Whether a model is to judge; it is its only assertion then."""
        return any(one.type == RUBRIC for one in self.assertions)

    def rubric(self, variables: Variables) -> str:
        """What a model is to judge by, filled in. Raises InputError."""
        return str(self.assertions[0].filled("value", variables, self.fill))

    def asserted(self, variables: Variables) -> list[dict[str, object]]:
        """Its assertions, filled in and checked. Raises InputError."""
        made = []
        for one in self.assertions:
            filled = {**one.fields}
            if "value" in filled and not one.type.endswith("python"):
                filled["value"] = one.filled("value", variables, self.fill)
            if one.type != RUBRIC and (wrong := check(filled)) is not None:
                raise one.written.wrong(wrong)
            made.append(filled)
        return made


@dataclass
class Tests:
    """Reads them. `files` has what they name and the suite needs, afterwards."""

    __test__ = False

    file: YamlFile
    fill: Fill
    files: dict[str, str] = field(default_factory=dict)

    def all(self, written: object, default: object) -> list[Test]:
        """Every test, in order. Raises InputError."""
        defaults = _mapping(Written(self.file, ("defaultTest",), default))
        if "vars" in defaults and not isinstance(defaults["vars"], Mapping):
            raise self.file.wrong(("defaultTest", "vars"), "must be a mapping")
        if written is None:
            raise self.file.wrong((), "has no tests", "an evaluation needs something that is asserted")
        each = each_test(Written(self.file, ("tests",), written))
        found = [self._test(one, number, defaults) for number, one in enumerate(each, start=1)]
        if not found:
            raise self.file.wrong(("tests",), "there is no test")
        return found

    def _test(self, written: Written, number: int, defaults: Mapping[str, Any]) -> Test:
        test = _mapping(written)
        options = {**defaults.get("options", {}), **test.get("options", {})}
        own = written.below("vars", test.get("vars") or {})
        variables = {**defaults.get("vars", {}), **variables_of(own)}
        assertions = self._assertions(written, test, defaults)
        threshold = test.get("threshold", defaults.get("threshold"))
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
            raise written.below("threshold", threshold).wrong("must be a number")
        judge = _judge(written, assertions, options)
        return Test(
            written=written,
            number=number,
            description=str(test.get("description", "")),
            variants=combinations(own, variables, self.fill, expand=not options.get("disableVarExpansion")),
            assertions=assertions,
            threshold=threshold,
            metadata={**defaults.get("metadata", {}), **test.get("metadata", {})},
            judge=judge,
            fill=self.fill,
        )

    def _assertions(
        self, written: Written, test: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> Sequence[Assertion]:
        found = [*self._listed(written.below("assert", test.get("assert")))]
        found += self._listed(Written(self.file, ("defaultTest", "assert"), defaults.get("assert")))
        if not found:
            raise written.wrong("asserts nothing, and would always pass", "add an assertion")
        if len(found) > 1 and any(one.type == RUBRIC for one in found):
            raise written.wrong(f"{RUBRIC} beside another assertion is not supported: a run has one judge")
        return found

    def _listed(self, written: Written) -> list[Assertion]:
        if written.value is None:
            return []
        if not isinstance(written.value, list):
            raise written.wrong("must be a list of assertions")
        return [self._assertion(written.below(number, one)) for number, one in enumerate(written.value)]

    def _assertion(self, written: Written) -> Assertion:
        one = written.value
        if not isinstance(one, Mapping) or not isinstance(one.get("type"), str):
            raise written.wrong("needs a type")
        value = one.get("value")
        if one["type"] == RUBRIC:
            if unknown := sorted(one.keys() - {"type", "value", "metric", "provider"}):
                raise written.below(unknown[0], None).wrong(f"of {RUBRIC} is not supported")
            if not isinstance(value, str) or not value.strip():
                raise written.wrong(f"{RUBRIC} needs a text as its value")
        elif (wrong := check(one)) is not None:
            raise written.wrong(wrong)
        if isinstance(value, str) and value.startswith("file://"):
            self._keep(written, value)
        return Assertion(written, one)

    def _keep(self, written: Written, named: str) -> None:
        """A function's file comes with the suite."""
        name = named.removeprefix("file://").partition(":")[0]
        path = written.file(name)
        if not name.endswith(".py"):
            raise written.wrong(f"{named!r} is not supported", "only Python files, file://NAME.py[:FUNCTION]")
        if not path.is_file() or "/" in name or name in ("scorer.py",):
            raise written.wrong(f"no file {name} beside it that could come along")
        self.files[name] = read_text(path, path)


def _mapping(written: Written) -> Mapping[str, Any]:
    """A test's fields, or those of the defaults. Raises InputError."""
    test = written.value
    if test is None:
        return {}
    if not isinstance(test, Mapping):
        raise written.wrong("must be a mapping")
    if unknown := sorted(map(str, test.keys() - _KNOWN)):
        raise written.below(unknown[0], None).wrong("of a test is not supported")
    for name in ("options", "metadata"):
        if not isinstance(test.get(name) or {}, Mapping):
            raise written.below(name, None).wrong("must be a mapping")
    if others := sorted((test.get("options") or {}).keys() - {"provider", "disableVarExpansion"}):
        raise written.below("options", None).below(others[0], None).wrong("is not supported")
    return {name: value for name, value in test.items() if value is not None}


def _judge(written: Written, assertions: Sequence[Assertion], options: Mapping[str, object]) -> str:
    rubric = next((one for one in assertions if one.type == RUBRIC), None)
    judge = (rubric.fields.get("provider") if rubric else None) or options.get("provider") or ""
    if judge and not (rubric and isinstance(judge, str)):
        raise (
            written.below("options", options)
            .below("provider", judge)
            .wrong("is only supported as text, for llm-rubric")
        )
    return str(judge)
