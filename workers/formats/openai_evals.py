"""Samples of OpenAI evals as a suite: a file of samples, or a registry file that names one.

A sample has `input`, a list of messages or a text, and `ideal`, a text or a list of them. A registry file says which
class compares and where the samples are. Classes that ask a model to grade, and few-shot examples, are named and not
converted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bus.errors import InputError
from workers.formats.converted import Converted
from workers.formats.grading import CLASSES
from workers.formats.yaml_file import YamlFile
from workers.rows import read_rows

__all__ = ["convert"]

_CLASS: Final = re.compile(r"evals\.elsuite\.basic\.(\w+):\w+")
_ARGUMENTS: Final = frozenset({"samples_jsonl", "ignore_case", "max_tokens", "temperature"})


def convert(path: Path, grader: str | None = None, name: str | None = None, model: str | None = None) -> Converted:
    """Read samples (`.jsonl`) or a registry file (`.yaml`). Raises InputError.

    `grader`: one of `CLASSES`, for samples, which name none. `name`: which of the registry's evals.
    """
    if path.suffix.lower() in (".yaml", ".yml"):
        if grader is not None:
            raise InputError("says by itself how answers are compared", file=path, remedy="leave --class out")
        return _of_registry(YamlFile(path), name, model)
    if name is not None:
        raise InputError("is no registry file, and has no evals by name", file=path, remedy="leave --eval out")
    if grader is None:
        known = ", ".join(CLASSES)
        raise InputError("samples do not say how answers are compared", file=path, remedy=f"--class, one of {known}")
    if grader not in CLASSES:
        raise InputError(f"--class: {grader!r} is none", file=path, remedy=f"one of {', '.join(CLASSES)}")
    return Converted(path, _settings(grader, model, {}), _cases(path))


def _settings(grader: str, model: str | None, args: Mapping[str, Any]) -> dict[str, object]:
    if grader == "includes" and args.get("ignore_case") is True:
        grader = "includes_any_case"
    asked = {key: args[key] for key in ("max_tokens", "temperature") if key in args}
    return {
        "solver": {"python": "workers.formats.asking:solve"},
        "scorer": {"kind": "python", "python": f"workers.formats.grading:{grader}"},
        "model": {**({"name": model} if model else {}), **asked},
    }


def _of_registry(file: YamlFile, name: str | None, model: str | None) -> Converted:
    found = file.value
    if not isinstance(found, Mapping):
        raise InputError("is no registry file: it holds no evals", file=file.path)
    evals = {key: one for key, one in found.items() if isinstance(one, Mapping) and "class" in one}
    aliases = {key: one.get("id") for key, one in found.items() if isinstance(one, Mapping) and "class" not in one}
    if not evals:
        raise InputError("holds no eval with a class", file=file.path)
    wanted = aliases.get(name, name) if name is not None else next(iter(evals)) if len(evals) == 1 else None
    if wanted not in evals:
        problem = f"holds {len(evals)} evals" if name is None else f"has no eval {name!r}"
        raise InputError(problem, file=file.path, remedy=f"--eval, one of {', '.join(list(aliases or evals)[:8])}")
    entry = evals[wanted]
    place = (str(wanted),)
    spec = str(entry["class"])
    matched = _CLASS.fullmatch(spec)
    if matched is None or matched[1] not in CLASSES:
        known = ", ".join(f"evals.elsuite.basic.{one}" for one in CLASSES)
        raise file.wrong((*place, "class"), f"the class {spec!r} is not supported (supported: {known})")
    args = entry.get("args") or {}
    if not isinstance(args, Mapping):
        raise file.wrong((*place, "args"), "must be a mapping")
    if unknown := sorted(key for key, value in args.items() if key not in _ARGUMENTS and value not in (0, False, None)):
        raise file.wrong((*place, "args", unknown[0]), "is not supported")
    samples = _samples(file, place, args.get("samples_jsonl"))
    return Converted(file.path, _settings(matched[1], model, args), _cases(samples))


def _samples(file: YamlFile, place: tuple[str, ...], written: object) -> Path:
    """Beside the registry file, or in the registry's directory of data."""
    if not isinstance(written, str) or not written:
        raise file.wrong((*place, "args"), "names no samples_jsonl")
    here = file.path.parent
    for path in (here / written, here.parent / "data" / written):
        if path.is_file():
            return path
    raise file.wrong((*place, "args", "samples_jsonl"), f"no file {written}, neither here nor in ../data")


def _cases(path: Path) -> list[Mapping[str, object]]:
    made: list[Mapping[str, object]] = []
    if path.suffix.lower() != ".jsonl":
        raise InputError("samples are read from a .jsonl file", file=path)
    for number, row in enumerate(read_rows(path, path), start=1):
        sample = dict(row.fields)
        asked, ideal = sample.pop("input", None), sample.pop("ideal", None)
        if not isinstance(asked, str) and not _are_messages(asked):
            raise InputError("input must be a text or a list of messages", file=path, line=row.line)
        ideals = ideal if isinstance(ideal, list) else [ideal]
        if not ideals or not all(isinstance(one, str) for one in ideals):
            raise InputError("ideal must be a text or a list of texts", file=path, line=row.line)
        made.append({"id": str(number), "input": asked, "target": ideals, "metadata": sample})
    if not made:
        raise InputError("holds no sample", file=path)
    return made


def _are_messages(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(
        isinstance(one, Mapping) and isinstance(one.get("role"), str) and "content" in one for one in value
    )  # fmt: skip
