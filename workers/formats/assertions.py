"""What promptfoo's tests assert of an answer: checked when a suite is converted, judged when its runs are scored.

As promptfoo has it: without a threshold every assertion must hold; with one, the mean of those that hold, by their
weights, must reach it. `not-` before a type turns it around. What asks another model, measures time or money, or is
written in another language than Python is not judged here, and `check` says so.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workers.cases import Case
from workers.processes.searching import SearchError, is_found
from workers.scoring import Score, ScorerError, Sealed
from workers.usercode import UserCodeError, call_guarded, load_function

__all__ = ["RUBRIC", "SUPPORTED", "Assertions", "Held", "check"]

RUBRIC: Final = "llm-rubric"
"""Judged by a model, so it becomes the suite's judge and not one of these; see `workers.formats.promptfoo`."""

_PATIENCE: Final = 10.0  # seconds for one search; a pattern may take exponential time
_DISTANCE: Final = 5  # of levenshtein, where no threshold is given


def check(assertion: Mapping[str, object]) -> str | None:
    """What is wrong with an assertion, as a clause; None when it can be judged."""
    kind = str(assertion.get("type", "")).removeprefix("not-")
    value = assertion.get("value")
    if kind not in SUPPORTED:
        return f"the assertion {assertion.get('type')!r} is not supported (supported: {', '.join(sorted(SUPPORTED))})"
    if unknown := sorted(assertion.keys() - {"type", "value", "threshold", "weight", "metric"}):
        return f"{unknown[0]!r} of an assertion is not supported"
    if kind in _LISTS and not (isinstance(value, list) and value):
        return f"{kind} needs a list of texts"
    if kind in _NEED_TEXT and not isinstance(value, str | int | float):
        return f"{kind} needs a text as its value"
    if kind == "equals" and value is None:
        return "equals needs a value"
    if kind in ("is-json", "contains-json") and value is not None:
        return _check_schema(value)
    if kind == "regex":
        try:
            re.compile(str(value))
        except re.error as error:
            return f"{value!r} is no regular expression of Python: {error}"
    for name in ("threshold", "weight"):
        number = assertion.get(name, 0)
        if isinstance(number, bool) or not isinstance(number, int | float) or number < 0:
            return f"{name} must be a number, at least 0"
    return None


def _check_schema(schema: object) -> str | None:
    try:
        import jsonschema  # noqa: PLC0415 - an extra
    except ImportError:
        return "a JSON schema needs jsonschema (pip install 'evalbus[formats]')"
    if not isinstance(schema, Mapping | bool):
        return "the value of is-json must be a JSON schema"
    try:
        whole: Any = dict(schema) if isinstance(schema, Mapping) else schema
        jsonschema.validators.validator_for(whole).check_schema(whole)
    except jsonschema.SchemaError as error:
        return f"its JSON schema is none: {error.message}"
    return None


@dataclass(frozen=True, slots=True)
class Held:
    """What one assertion came to: whether it holds, and how much of it, from 0 to 1."""

    passed: bool
    share: float

    @classmethod
    def of(cls, passed: bool) -> Held:
        """For what holds or does not."""
        return cls(passed, float(passed))


@dataclass(frozen=True, slots=True)
class Assertions:
    """The scorer of a converted suite. `root`: its directory, where functions that it names are."""

    root: Path

    async def score(self, case: Case, sealed: Sealed) -> Score:
        """The verdict on an answer; the case's target has the assertions. Raises ScorerError if one can't be judged."""
        target = case.target
        if not isinstance(target, Mapping) or not isinstance(asserted := target.get("assert"), list):
            raise ScorerError("the case's target holds no assertions")
        sum_, weights, failed = 0.0, 0.0, ""
        for one in asserted:
            if not isinstance(one, Mapping) or (wrong := check(one)) is not None:
                raise ScorerError(
                    wrong if isinstance(one, Mapping) else "an assertion of the case's target is no object"
                )
            held = await self.judge(one, case, sealed.answer)
            weight = float(one.get("weight", 1))  # `check` has looked
            weights += weight
            sum_ += weight * held.share
            if not held.passed and weight and not failed:
                failed = f"{one.get('metric') or one.get('type')} does not hold"
        mean = sum_ / weights if weights else 1.0
        threshold = target.get("threshold")
        whole = mean >= float(threshold) if isinstance(threshold, int | float) else not failed
        return Score("pass" if whole else "fail", f"{mean:.4g}", failed)

    async def judge(self, assertion: Mapping[str, Any], case: Case, answer: str) -> Held:
        """Whether one assertion holds of an answer. Raises ScorerError when that cannot be found out."""
        kind = str(assertion["type"])
        turned, kind = kind.startswith("not-"), kind.removeprefix("not-")
        value = assertion.get("value")
        if kind == "regex":
            try:
                held = Held.of(await is_found([str(value)], answer, timeout=_PATIENCE))
            except SearchError as error:
                raise ScorerError(str(error)) from error
        elif kind == "levenshtein":
            from rapidfuzz.distance import Levenshtein  # noqa: PLC0415 - an extra

            most = float(assertion.get("threshold", _DISTANCE))
            held = Held.of(Levenshtein.distance(str(value), answer) <= most)
        elif kind == "python":
            held = await self._python(str(value), assertion.get("threshold"), case, answer)
        else:
            held = Held.of(_PLAIN[kind](value, answer))
        return Held(not held.passed, 1 - held.share) if turned else held

    async def _python(self, code: str, threshold: float | None, case: Case, answer: str) -> Held:
        """An expression, the body of a function, or `file://NAME.py[:FUNCTION]` in the suite."""
        context = {"vars": dict(case.metadata), "prompt": case.prompt}
        try:
            if code.startswith("file://"):
                place, _, name = code.removeprefix("file://").partition(":")
                function = load_function(f"{place}:{name or 'get_assert'}", self.root)
            else:
                function = _compiled(code)
            said = await call_guarded(function, answer, context)
        except UserCodeError as error:
            raise ScorerError(f"python: {error.problem}") from error
        return _read(said, threshold)


def _compiled(code: str) -> Callable[..., object]:
    """A function of `output` and `context`. Raises UserCodeError."""
    body = code if re.search(r"\breturn\b", code) else f"return ({code}\n)"
    names: dict[str, Any] = {}
    try:
        exec(f"def judge(output, context):\n{textwrap.indent(body, '    ')}\n", names)  # noqa: S102 - the suite's own code
    except SyntaxError as error:
        raise UserCodeError(f"{code[:60]!r} is no Python: {error.msg}") from None
    return names["judge"]  # type: ignore[no-any-return]


def _read(said: object, threshold: float | None) -> Held:
    """What an assertion's function returned: a boolean, a score, or a mapping with `pass` and `score`."""
    match said:
        case bool():
            return Held.of(said)
        case int() | float():
            passed = said >= threshold if threshold is not None else said > 0
            return Held(passed, min(max(float(said), 0.0), 1.0))
        case Mapping():
            passed = said.get("pass", said.get("pass_"))
            share = said.get("score", float(bool(passed)))
            if isinstance(passed, bool) and isinstance(share, int | float):
                return Held(passed, min(max(float(share), 0.0), 1.0))
    raise ScorerError(
        f"python: it returned {said!r:.60}, not a boolean, a number, or a mapping with 'pass' and 'score'"
    )


# --- the kinds --------------------------------------------------------------------------------------------


def _texts(value: object) -> Sequence[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _equals(value: object, answer: str) -> bool:
    if isinstance(value, Mapping | list):
        try:
            return bool(json.loads(answer) == value)
        except (ValueError, RecursionError):
            return False
    if isinstance(value, bool) or value is None:
        return answer == json.dumps(value)
    return answer == str(value)


def _is_json(value: object, answer: str) -> bool:
    try:
        return _fits(value, json.loads(answer))
    except (ValueError, RecursionError):
        return False


def _contains_json(value: object, answer: str) -> bool:
    """Any object or list in the answer that is whole and fits."""
    decoder = json.JSONDecoder()
    for at, sign in enumerate(answer):
        if sign not in "{[":
            continue
        try:
            found, _ = decoder.raw_decode(answer, at)
        except (ValueError, RecursionError):
            continue
        if _fits(value, found):
            return True
    return False


def _fits(schema: Any, found: Any) -> bool:  # noqa: ANN401 - whatever JSON holds
    if schema is None:
        return True
    import jsonschema  # noqa: PLC0415 - `check` has said that it is there

    return bool(jsonschema.validators.validator_for(schema)(schema).is_valid(found))


_PLAIN: Final[Mapping[str, Callable[[object, str], bool]]] = {
    "equals": _equals,
    "contains": lambda value, answer: str(value) in answer,
    "icontains": lambda value, answer: str(value).lower() in answer.lower(),
    "contains-all": lambda value, answer: all(one in answer for one in _texts(value)),
    "contains-any": lambda value, answer: any(one in answer for one in _texts(value)),
    "icontains-all": lambda value, answer: all(one.lower() in answer.lower() for one in _texts(value)),
    "icontains-any": lambda value, answer: any(one.lower() in answer.lower() for one in _texts(value)),
    "starts-with": lambda value, answer: answer.startswith(str(value)),
    "ends-with": lambda value, answer: answer.endswith(str(value)),
    "is-json": _is_json,
    "contains-json": _contains_json,
}
_LISTS: Final = ("contains-all", "contains-any", "icontains-all", "icontains-any")
_NEED_TEXT: Final = ("contains", "icontains", "starts-with", "ends-with", "regex", "levenshtein", "python")
SUPPORTED: Final = frozenset((*_PLAIN, "regex", "levenshtein", "python"))
"""Without their `not-`."""
