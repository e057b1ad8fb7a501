"""What names an Inspect task: `inspect:FILE.py@task`, and the same as a path.

Every role is told its suite by a path, which it may resolve, record in the batch, and look up on another machine. So a
task is one too: `DIR/FILE.py@task`, in the file's own directory, with its options behind a question mark, quoted so
that none of them has a slash:

    inspect:evals/arithmetic.py@addition          the shape that a user writes
    /home/me/evals/arithmetic.py@addition?model=mockllm%2Fmodel&T.n=3      the path

    model    as `inspect eval --model`        epochs   as `--epochs`
    limit    as `--limit`, a count            T.NAME   a task argument, as `-T NAME=VALUE`
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from bus.errors import InputError

__all__ = ["PREFIX", "Target", "file_of", "is_target", "plain", "target_of", "with_options"]

PREFIX: Final = "inspect:"
_NAME: Final = re.compile(r"(?P<file>[^/@?]+\.py)@(?P<task>[A-Za-z_][A-Za-z0-9_]*)?(?:\?(?P<options>[^/]*))?")
_COUNTS: Final = ("epochs", "limit")


@dataclass(frozen=True, slots=True)
class Target:
    """A task in a file, and what the command line said of it: fields of the table `[inspect]`."""

    file: Path
    task: str
    """Empty: the only one that the file has."""
    options: Mapping[str, Any]


def plain(path: Path | str) -> Path:
    """The path of a target that a user wrote with `inspect:`; any other path as it is. Raises InputError."""
    text = str(path)
    if not text.startswith(PREFIX):
        return Path(text)
    place, mark, options = text.removeprefix(PREFIX).partition("?")
    at = place if "@" in place.rpartition("/")[2] else f"{place}@"
    options = urlencode(parse_qsl(options, keep_blank_values=True), quote_via=quote, safe="")
    found = Path(at + mark + options)
    if not is_target(found):
        raise InputError(f"{text!r} names no Inspect task", remedy="write inspect:FILE.py@task")
    return found


def is_target(path: Path) -> bool:
    """Whether a path means a task in a file, and no file."""
    return _NAME.fullmatch(path.name) is not None


def file_of(path: Path) -> Path:
    """The file that has to be there: the task's, or the suite's own."""
    found = _NAME.fullmatch(path.name)
    return path if found is None else path.with_name(found["file"])


def target_of(path: Path) -> Target:
    """What the path of a target says. Raises InputError for an option that there is not."""
    found = _NAME.fullmatch(path.name)
    assert found is not None, "asked before"
    options: dict[str, Any] = {}
    for name, value in parse_qsl(found["options"] or "", keep_blank_values=True):
        if name.startswith("T."):
            options.setdefault("args", {})[name[2:]] = _value(value)
        elif name in _COUNTS and value.isascii() and value.isdigit():
            options[name] = int(value)
        elif name == "model" and value:
            options[name] = value
        else:
            raise InputError(
                f"{name}={value}: no such option of an Inspect task", file=path, remedy="model, epochs, limit, T.NAME"
            )
    return Target(path.with_name(found["file"]), found["task"] or "", options)


def with_options(
    path: Path, model: str | None, arguments: Sequence[str], epochs: int | None, limit: int | None
) -> Path:
    """The path of a suite as it was written, with what the command line adds. Raises InputError."""
    told = [] if model is None else [("model", model)]
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name.isidentifier():
            raise InputError(f"-T {argument}: is no NAME=VALUE")
        told.append((f"T.{name}", value))
    told += [(name, str(count)) for name, count in (("epochs", epochs), ("limit", limit)) if count is not None]
    found = plain(path) if str(path).startswith(PREFIX) else path
    if not told:
        return found
    if not is_target(found):
        raise InputError(
            "--model, -T and --epochs are for Inspect tasks",
            file=path,
            remedy="name one: inspect:FILE.py@task; a suite says it in its file, the model perhaps in EVALBUS_MODEL",
        )
    return found.with_name(
        f"{found.name}{'&' if '?' in found.name else '?'}{urlencode(told, quote_via=quote, safe='')}"
    )


def _value(text: str) -> object:
    """A task argument as Inspect reads it from its command line: YAML's numbers, booleans and null, else text."""
    if re.fullmatch(r"[+-]?\d+", text):
        return int(text)
    if re.fullmatch(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?", text):
        return float(text)
    if "," in text:
        return [_value(item) for item in text.split(",")]
    return {"true": True, "false": False, "null": None}.get(text.lower(), text)
