"""A suite: what is asked of whom, how it is judged, and within what limits.

A directory with `suite.toml`, or with `suite.py` that makes the same thing as `suite = Suite(...)`. Everything
that is wrong with it is said before anything starts, in one line that names the file and the field: a batch
that fails over a typing error after an hour has cost an hour.

A suite is known by its digest, over all files of its directory (code, cases, configuration) and over what was
declared. Two processes that work on one batch compare digests, not paths. So whatever a suite names has to lie
inside its directory, and may not be on its list of ignored files.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from bus.errors import InputError
from bus.nearest import nearest
from bus.types import Digest
from workers import usercode
from workers.cases import Case, Json, cases_from_tables, read_cases
from workers.comparing import target_trouble
from workers.complaints import complain
from workers.declaration import Place, Suite
from workers.inspecting.target import file_of, is_target, plain, target_of
from workers.judging.prompt import JudgePrompt
from workers.modelling.table import ModelTable, Target
from workers.own_names import check_own_names
from workers.redaction import hide_variable
from workers.rows import read_text
from workers.scorer_table import ScorerTable, is_file_name
from workers.tables import (
    MAX_RUNS,
    GateTable,
    JudgeTable,
    LimitsTable,
    SolverTable,
    WorkspaceTable,
)
from workers.toml_lines import line_of
from workers.tools.code import functions_of
from workers.trees import DIRECTORY, Entry, TreeError, hash_entries, ignored, walk

__all__ = [
    "Case",
    "GateTable",
    "JudgeTable",
    "LimitsTable",
    "ModelTable",
    "ScorerTable",
    "SolverTable",
    "Suite",
    "WorkspaceTable",
    "function_of",
    "load_suite",
]

NEVER_COUNTED: Final = (
    ".git",
    ".hg",
    ".svn",
    ".evalbus",
    ".venv",
    "__pycache__",
    "*.pyc",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    ".hypothesis",
    ".DS_Store",
)
"""Patterns of what other tools put into a suite's directory: never a part of the suite."""

_ENDINGS: Final = (".toml", ".py")
_NAMED: Final = 5  # suites, in answer to one that is not there


def load_suite(path: Path | str, *, check_code: bool = True, check_targets: bool | None = None) -> Suite:
    """Read and check a suite: `path` is its directory, the suite file itself, or an Inspect task. Raises `InputError`.

    `check_code` imports the solver, the scorer and the tools, and sees that the scorer can compare with every target:
    the processes that will call them find out at the start. A planner, which never calls them, may leave it out.
    `check_targets`: the second alone; when left out, as `check_code`.
    """
    source = _find(plain(path))
    try:
        return _load(
            source, check_code=check_code, check_targets=check_code if check_targets is None else check_targets
        )
    except InputError as error:
        raise _with_line(error, source) from error.__cause__


def _with_line(error: InputError, source: Path) -> InputError:
    """What is wrong with a field of a TOML suite is told with the line that the field is written in."""
    if type(error) is not InputError or error.line is not None or error.file != source or source.suffix != ".toml":
        return error
    try:
        line = line_of(read_text(source, source), error.problem.partition(": ")[0])
    except (InputError, tomllib.TOMLDecodeError, RecursionError):  # the file itself is what is wrong
        return error
    return InputError(error.problem, file=source, line=line, remedy=error.remedy)


def _load(source: Path, *, check_code: bool, check_targets: bool) -> Suite:
    root = source.parent.resolve()
    check_own_names(root, source.parent)
    declared = _read(source, root)
    for variable in declared.secret_variables:  # in each role, before any more of the suite's code runs in it
        hide_variable(variable)
    task = None
    if declared.inspect is not None:
        from workers.inspecting.loading import IGNORED, load_task  # noqa: PLC0415 - for those who have a task

        task = load_task(declared.inspect, source, root)
        told = {"inspect": task.table, "declared_cases": task.cases, "trials": task.epochs}
        declared = declared.model_copy(update={**told, "ignore": (*declared.ignore, *IGNORED)})
    files = _Files(source, root, (*NEVER_COUNTED, *declared.ignore))
    files.path("this file", source.name)
    cases = _load_cases(declared, files, check_targets=check_targets)
    runs = len(cases) * declared.trials
    if runs > MAX_RUNS:
        raise InputError(
            f"trials: {len(cases):,} cases x {declared.trials:,} trials are {runs:,} runs",
            file=source,
            remedy=f"a batch has at most {MAX_RUNS:,}",
        )
    by_id = {case.id: case for case in cases}
    digest = _digest(declared, cases, files)
    suite = declared.at(Place(root, source, cases, digest, by_id, files.not_counted, *_targets(declared), task))
    if suite.quorum_runs > suite.intended:
        raise InputError(
            f"quorum: {suite.quorum_runs} is more than the number of runs, {suite.intended}",
            file=source,
            remedy=f"cases {len(cases)} x trials {suite.trials}",
        )
    if suite.workspace is not None:
        files.directories("workspace.template", suite.workspace.template, cases)
    files.directories("scorer.files", suite.scorer.files, cases)
    if suite.gate.no_worse_than is not None:
        from workers.gating.snapshot_file import frozen  # noqa: PLC0415 - for those who have one

        baseline = files.file("gate.no_worse_than", suite.gate.no_worse_than)
        frozen(baseline.read_bytes(), str(files.source.parent / suite.gate.no_worse_than))
    _ = suite.gate_rules  # raises for a case that is not there
    if suite.scorer.prompt is not None:
        files.file("scorer.prompt", suite.scorer.prompt)
        if suite.scorer.system is not None and is_file_name(suite.scorer.system):
            files.file("scorer.system", suite.scorer.system)
        JudgePrompt.of(suite.root, suite.source, suite.scorer)
    functions = {"solver.python": suite.solver.python, "scorer.python": suite.scorer.python}
    functions |= {f"tools.{name}.python": tool.python for name, tool in suite.tools.items()}
    for field, spec in functions.items():
        if spec is not None and (place := spec.rpartition(":")[0]).endswith(".py"):
            files.file(field, place)
    if check_code:
        function_of(suite, "solver")
        function_of(suite, "scorer")
        functions_of(suite)
    return suite


def _targets(declared: Suite) -> tuple[Target | None, Target | None]:
    """The models, candidate's and judge's, as the environment stands now. Who never asks one need not know it."""
    judge = declared.scorer.model if declared.scorer.kind == "model" else None
    return _target(declared.model), _target(judge)


def _target(table: ModelTable | None) -> Target | None:
    try:
        return None if table is None else table.target()
    except InputError:
        return None


def function_of(suite: Suite, table: Literal["solver", "scorer"]) -> Callable[..., object] | None:
    """The function that a table's `python` names; None when it names none. Raises `InputError`."""
    spec = suite.solver.python if table == "solver" else suite.scorer.python
    if spec is None or suite.inspect is not None:
        return None
    try:
        function = usercode.load_function(spec, suite.root)
    except usercode.UserCodeError as error:
        line = f" (line {error.line})" if error.line is not None else ""
        raise InputError(f"{table}.python: {error.problem}{line}", file=suite.source) from error
    needed = "(case, run)" if table == "solver" else "(case, sealed)"
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise InputError(f"{table}.python: {spec} cannot be called with {needed}", file=suite.source) from None
    except ValueError:  # a built-in that does not tell its signature
        pass
    return function


# --- the suite file ---------------------------------------------------------------------------------------


def _read(source: Path, root: Path) -> Suite:
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


def _find(path: Path) -> Path:
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


# --- its files --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Files:
    """The suite's directory, and what of it counts."""

    source: Path
    root: Path
    not_counted: tuple[str, ...]

    def path(self, field: str, relative: str) -> Path:
        """Something that the suite names: inside its directory, and part of its digest."""
        found = self.root / relative
        real = found.resolve()
        if not real.is_relative_to(self.root):
            raise InputError(
                f"{field}: {relative!r} is outside the suite directory",
                file=self.source,
                remedy="copy it in: the suite's digest covers that directory only",
            )
        if any(ignored(name, self.not_counted) for name in (relative, real.relative_to(self.root).as_posix())):
            raise InputError(f"{field}: {relative!r} is on the list of ignored files", file=self.source)
        return found

    def file(self, field: str, relative: str) -> Path:
        """A file that the suite names."""
        found = self.path(field, relative)
        if not found.is_file():
            raise InputError(f"{field}: no such file: {relative}", file=self.source)
        return found

    def directories(self, field: str, template: str | None, cases: tuple[Case, ...]) -> None:
        """A directory that the suite names, or one for each case when the name holds `{id}`."""
        if template is None:
            return
        for case in cases if "{id}" in template else cases[:1]:
            relative = template.replace("{id}", case.id)
            if ".." in relative.split("/") or relative.startswith("/"):
                raise InputError(f"{field}: the id of case {case.id!r} leads out of its directory", file=self.source)
            if not self.path(field, relative).is_dir():
                whose = f" for case {case.id!r}" if "{id}" in template else ""
                raise InputError(f"{field}: no directory {relative}{whose}", file=self.source)


def _load_cases(declared: Suite, files: _Files, *, check_targets: bool) -> tuple[Case, ...]:
    def compared(target: Json) -> str | None:
        return target_trouble(target, declared.scorer)

    # An Inspect task has scorers of its own, whatever the table says.
    trouble = compared if check_targets and declared.inspect is None else None
    if not isinstance(declared.declared_cases, str):
        return cases_from_tables(declared.declared_cases, files.source, trouble)
    path = files.path("cases", declared.declared_cases)
    if not path.exists():
        raise InputError(f"cases: no such file: {declared.declared_cases}", file=files.source)
    return read_cases(path, files.source.parent / declared.declared_cases, declared.fields, trouble)


def _digest(declared: Suite, cases: tuple[Case, ...], files: _Files) -> Digest:
    def entries() -> Iterator[Entry]:
        for entry in walk(files.root, files.not_counted):
            if entry.leads_out:
                raise InputError(
                    f"the link {entry.name} leads out of the suite directory",
                    file=files.source,
                    remedy="replace it by what it names, or put it on the suite's ignore list",
                )
            if entry.mode != DIRECTORY:  # an empty one does not survive version control
                yield entry

    try:
        tree = hash_entries(entries(), files.not_counted)
    except TreeError as error:
        raise InputError(str(error), file=files.source) from error
    except OSError as error:
        raise InputError(str(TreeError.from_os(error)), file=files.source) from error
    # A Python suite may read the environment and declare two different things from the same files.
    told = declared.model_dump(mode="json", exclude={"declared_cases"}, exclude_unset=True)
    inline = [] if isinstance(declared.declared_cases, str) else [asdict(case) for case in cases]
    whole = json.dumps([tree, files.source.name, told, inline], sort_keys=True)
    return Digest(hashlib.sha256(b"evalbus-suite 1\0" + whole.encode()).hexdigest())


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
