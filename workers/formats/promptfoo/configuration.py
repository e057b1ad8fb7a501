"""A promptfoo configuration as a suite: prompts x tests, each with its assertions.

Every prompt is filled in for every test, and for every combination of variables that are lists; each is one case. What
is asserted stands in the case's target, the variables in its metadata. One provider becomes the suite's model: of
several, the command says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bus.errors import InputError
from workers.formats.assertions import RUBRIC
from workers.formats.converted import Converted
from workers.formats.promptfoo.prompts import Prompt, filled, read_prompts
from workers.formats.promptfoo.provider import chosen_model, model_table
from workers.formats.promptfoo.tests import Test, Tests
from workers.formats.yaml_file import YamlFile

__all__ = ["convert"]

_KNOWN: Final = frozenset({"prompts", "providers", "targets", "tests", "defaultTest", "description", "evaluateOptions"})
_LEFT_OUT: Final = frozenset({"outputPath", "sharing", "commandLineOptions", "tags", "metadata", "writeLatestResults"})
_SCORER: Final = '''"""What the tests assert. It is yours: write another `score(case, sealed)` if you need one."""

from pathlib import Path

from workers.formats.assertions import Assertions

score = Assertions(Path(__file__).parent).score
'''
_QUESTION: Final = """You judge whether an answer meets a rubric.

Rubric:
{target}

Answer:
{answer}

Say why in one or two sentences, then end with a line that is GRADE: PASS or GRADE: FAIL.
"""


def convert(path: Path, provider: str | None = None, model: str | None = None) -> Converted:
    """Read a configuration. Raises InputError for what is wrong with it, and for what evalbus does not have.

    `provider` is the one of its providers that is evaluated, by id or label; `model` a model's name instead of any.
    """
    file = YamlFile(path)
    whole = file.value
    if not isinstance(whole, Mapping) or not ({"prompts", "tests"} & whole.keys()):
        raise InputError("is no promptfoo configuration: it has neither prompts nor tests", file=path)
    for name in whole:
        if name not in _KNOWN | _LEFT_OUT and not str(name).startswith(("$", "x-")):
            raise file.wrong((name,), "is not supported", "take it out, or write a suite")
    left_out = [str(name) for name in whole if name in _LEFT_OUT]
    prompts = read_prompts(file, whole.get("prompts"))
    tests = Tests(file, filled)
    found = tests.all(whole.get("tests"), whole.get("defaultTest"))
    settings: dict[str, Any] = _options(file, whole.get("evaluateOptions"), left_out)
    settings["solver"] = {"python": "workers.formats.asking:solve"}
    settings["model"] = {"name": model} if model else chosen_model(file, whole, provider)
    cases = [case for prompt in prompts for test in found for case in _cases(prompt, test, len(prompts) > 1)]
    scorer, files = _scorer(file, found)
    return Converted(path, {**settings, "scorer": scorer}, cases, {**tests.files, **files}, left_out)


def _cases(prompt: Prompt, test: Test, several: bool) -> list[Mapping[str, object]]:
    made: list[Mapping[str, object]] = []
    for number, variables in enumerate(test.variants, start=1):
        name = (
            f"{f'p{prompt.number}-' if several else ''}t{test.number}{f'.{number}' if len(test.variants) > 1 else ''}"
        )
        about = {"prompt": prompt.label, **({"test": test.description} if test.description else {})}
        metadata = {**about, **test.metadata, **variables}
        target: object = {
            "assert": test.asserted(variables),
            **({"threshold": t} if (t := test.threshold) is not None else {}),
        }
        if test.has_rubric:
            target = test.rubric(variables)
        made.append({"id": name, "input": prompt.filled(variables), "target": target, "metadata": metadata})
    return made


def _scorer(file: YamlFile, tests: Sequence[Test]) -> tuple[dict[str, object], dict[str, str]]:
    by_model = [test for test in tests if test.has_rubric]
    if not by_model:
        return {"kind": "python", "python": "scorer.py:score"}, {"scorer.py": _SCORER}
    if len(by_model) < len(tests):
        other = next(test for test in tests if not test.has_rubric)
        problem = f"asserts no {RUBRIC}, as others do: a suite has one judge for all its runs"
        raise other.written.wrong(problem, "convert them apart")
    judges = {test.judge for test in tests if test.judge}
    if len(judges) > 1:
        raise file.wrong((), f"{RUBRIC} is judged by {' and '.join(sorted(judges))}: a suite has one judge")
    scorer: dict[str, object] = {
        "kind": "model", "prompt": "judge.txt", "grades": {"PASS": "pass", "FAIL": "fail"}, "ignore_case": True,
    }  # fmt: skip
    if judges:
        scorer["model"] = model_table(file, (), next(iter(judges)), {})
    return scorer, {"judge.txt": _QUESTION}


def _options(file: YamlFile, written: object, left_out: list[str]) -> dict[str, Any]:
    if written is None:
        return {}
    if not isinstance(written, Mapping):
        raise file.wrong(("evaluateOptions",), "must be a mapping")
    names = {"repeat": "trials", "maxConcurrency": "concurrency"}
    left_out += [f"evaluateOptions.{name}" for name in written if name not in names]
    return {names[name]: value for name, value in written.items() if name in names}
