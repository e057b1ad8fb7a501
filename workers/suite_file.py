"""The file of a suite: which one is meant, and what it declares. A slip is told with the line that it is on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from bus.errors import InputError
from bus.nearest import nearest
from workers import usercode
from workers.complaints import complain
from workers.declaration import Suite
from workers.inspecting.target import file_of, is_target, target_of
from workers.rows import read_text
from workers.toml_lines import line_of

__all__ = ["find_suite", "read_suite", "with_line"]

_ENDINGS: Final = (".toml", ".py")
_NAMED: Final = 5  # suites, in answer to one that is not there


def find_suite(path: Path) -> Path:
    """The file that is meant: itself, the one in a directory, or an Inspect task. Raises InputError."""
    if is_target(path):
        if not file_of(path).is_file():
            raise InputError("no such file", file=file_of(path))
        return path
    if path.is_dir():
        found = [path / name for name in ("suite.toml", "suite.py") if (path / name).is_file()]
        if not found:
            raise InputError("holds no suite.toml and no suite.py", file=path, remedy=_suites_in(path))
        if len(found) > 1:
            raise InputError("holds both suite.toml and suite.py", file=path, remedy="name the one that counts")
        return found[0]
    if not path.exists():
        raise InputError("no such file or directory", file=path, remedy=_suites_near(path))
    if path.suffix not in _ENDINGS or not path.is_file():
        raise InputError("is not a suite", file=path, remedy="name a directory, a .toml or a .py file")
    return path


def _suites_near(path: Path) -> str | None:
    """What was probably meant, of what is beside it; where nothing is like it, which suites there are."""
    try:
        beside = [one for one in sorted(path.parent.iterdir()) if one.suffix in _ENDINGS or _holds_suite(one)]
    except OSError:
        return None
    named = {one.name: one for one in beside}
    if near := nearest(path.name, named):
        return f"did you mean {named[near]}?"
    return _suites_in(path.parent)


def _suites_in(path: Path) -> str | None:
    """Which suites a directory has in it: whoever says `evalbus run .` stands one above."""
    try:
        suites = [str(one) for one in sorted(path.iterdir()) if _holds_suite(one)]
    except OSError:
        return None
    return f"suites there: {', '.join(suites[:_NAMED])}" if suites else None


def _holds_suite(path: Path) -> bool:
    return any((path / name).is_file() for name in ("suite.toml", "suite.py"))


def read_suite(source: Path, root: Path) -> Suite:
    """What it declares; a Python file is run, in its directory `root`. Raises InputError."""
    if is_target(source):
        target = target_of(source)
        name = {"name": target.task} if target.task else {}
        table = {"task": f"{target.file.name}@{target.task}", **target.options}
        try:
            return Suite.model_validate({**name, "inspect": table})
        except ValidationError as error:
            found = complain(error)
            raise InputError(found.problem, file=source, remedy=found.remedy) from None
    return _read_toml(source) if source.suffix == ".toml" else _read_python(source, root)


def _read_toml(source: Path) -> Suite:
    text = read_text(source, source)
    try:
        return Suite.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        at = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        said = str(error) if at is None else str(error)[: at.start()]
        line = int(at[1]) if at is not None and at[1] else text.rstrip().count("\n") + 1
        raise InputError(f"invalid TOML: {said}", file=source, line=line) from None
    except RecursionError:
        raise InputError("invalid TOML: nested too deep", file=source) from None
    except ValidationError as error:
        found = complain(error)
        raise InputError(found.problem, file=source, remedy=found.remedy) from None


def _read_python(source: Path, root: Path) -> Suite:
    try:
        module = usercode.load_file(root / source.name, root)
    except usercode.UserCodeError as error:
        cause = error.__cause__
        if isinstance(cause, ValidationError):
            found = complain(cause)
            raise InputError(found.problem, file=source, line=error.line, remedy=found.remedy) from None
        raise InputError(error.problem, file=source, line=error.line) from error
    suite = getattr(module, "suite", None)
    if not isinstance(suite, Suite):
        what = "defines no `suite`" if suite is None else f"`suite` is not a Suite but a {type(suite).__name__}"
        remedy = "from workers.suite import Suite; suite = Suite(...)"
        raise InputError(what, file=source, remedy=remedy)
    return suite


def with_line(error: InputError, source: Path) -> InputError:
    """What is wrong with a field of a TOML suite is told with the line that the field is written in."""
    if type(error) is not InputError or error.line is not None or error.file != source or source.suffix != ".toml":
        return error
    try:
        line = line_of(read_text(source, source), error.problem.partition(": ")[0])
    except (InputError, tomllib.TOMLDecodeError, RecursionError):  # the file itself is what is wrong
        return error
    return InputError(error.problem, file=source, line=line, remedy=error.remedy)
