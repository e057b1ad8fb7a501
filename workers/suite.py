"""A suite: what is asked of whom, how it is judged, and within what limits.

A directory with `suite.toml`, or with `suite.py` that makes the same thing as `suite = Suite(...)`. Everything
that is wrong with it is said before anything starts, in one line that names the file and the field: a batch
that fails over a typing error after an hour has cost an hour.

A suite is known by its digest, over all files of its directory (code, cases, configuration) and over what was
declared. Two processes that work on one batch compare digests, not paths. So whatever a suite names has to lie
inside its directory, and may not be on its list of ignored files.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from bus.errors import InputError
from workers import usercode
from workers.cases import Case, Json, cases_from_tables, read_cases
from workers.comparing import target_trouble
from workers.declaration import Place, Suite
from workers.inspecting.target import plain
from workers.judging.prompt import JudgePrompt
from workers.modelling.table import ModelTable, Target
from workers.own_names import check_own_names
from workers.redaction import hide_variable
from workers.scorer_table import ScorerTable, is_file_name
from workers.suite_file import find_suite, read_suite, with_line
from workers.suite_tree import NEVER_COUNTED, SuiteTree, digest_of
from workers.tables import (
    MAX_RUNS,
    GateTable,
    JudgeTable,
    LimitsTable,
    SolverTable,
    WorkspaceTable,
)
from workers.tools.code import functions_of

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


def load_suite(path: Path | str, *, check_code: bool = True, check_targets: bool | None = None) -> Suite:
    """Read and check a suite: `path` is its directory, the suite file itself, or an Inspect task. Raises `InputError`.

    `check_code` imports the solver, the scorer and the tools, and sees that the scorer can compare with every target:
    the processes that will call them find out at the start. A planner, which never calls them, may leave it out.
    `check_targets`: the second alone; when left out, as `check_code`.
    """
    source = find_suite(plain(path))
    try:
        return _load(
            source, check_code=check_code, check_targets=check_code if check_targets is None else check_targets
        )
    except InputError as error:
        raise with_line(error, source) from error.__cause__


def _load(source: Path, *, check_code: bool, check_targets: bool) -> Suite:
    root = source.parent.resolve()
    check_own_names(root, source.parent)
    declared = read_suite(source, root)
    for variable in declared.secret_variables:  # in each role, before any more of the suite's code runs in it
        hide_variable(variable)
    task = None
    if declared.inspect is not None:
        from workers.inspecting.loading import IGNORED, load_task  # noqa: PLC0415 - for those who have a task

        task = load_task(declared.inspect, source, root)
        told = {"inspect": task.table, "declared_cases": task.cases, "trials": task.epochs}
        declared = declared.model_copy(update={**told, "ignore": (*declared.ignore, *IGNORED)})
    files = SuiteTree(source, root, (*NEVER_COUNTED, *declared.ignore))
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
    digest = digest_of(declared, cases, files)
    suite = declared.at(Place(root, source, cases, digest, by_id, files.not_counted, *_targets(declared), task))
    if suite.quorum_runs > suite.intended:
        raise InputError(
            f"quorum: {suite.quorum_runs} is more than the number of runs, {suite.intended}",
            file=source,
            remedy=f"cases {len(cases)} x trials {suite.trials}",
        )
    _check_named(suite, files)
    if check_code:
        function_of(suite, "solver")
        function_of(suite, "scorer")
        functions_of(suite)
    return suite


def _check_named(suite: Suite, files: SuiteTree) -> None:
    """What the suite names is there: files in its directory, and cases. Raises InputError."""
    if suite.workspace is not None:
        files.directories("workspace.template", suite.workspace.template, suite.cases)
    files.directories("scorer.files", suite.scorer.files, suite.cases)
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


def _load_cases(declared: Suite, files: SuiteTree, *, check_targets: bool) -> tuple[Case, ...]:
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
