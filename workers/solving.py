"""Solvers: how a suite's candidate is asked for its answer.

Whatever the candidate's code does wrong is a `SolverError` with one line for the hole that the run becomes. The
rest passes: a cancellation (the worker is stopping, or the run's lease is gone) must not be taken for the
candidate's failure, and is never swallowed here; nor may the machine's (`workers.processes.machine`).

The overall time of a run is the worker's to keep; a command's own limits are kept here.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from workers.cases import Case
from workers.processes.commands import CommandError, fill, passed_on, run_limited
from workers.processes.machine import OF_ANY_CODE, fault_of, let_go
from workers.programs import fault_of_absence
from workers.redaction import redacted
from workers.run import Run
from workers.suite import Suite, function_of
from workers.tables import SolverTable
from workers.usercode import UserCodeError, call_guarded
from workers.workspace import suite_environment

if TYPE_CHECKING:
    from workers.inspecting.solver import InspectSolver

__all__ = ["Solver", "SolverError", "SolverTimeoutError", "make_solver"]


log = structlog.get_logger("evalbus.solving")

_INSTEAD: Final = {
    "Completion": "return its text",
    "NoneType": "a return is missing",
    **dict.fromkeys(("dict", "list"), "json.dumps makes text of it"),
}
"""What was meant, by the type of what was returned."""


class SolverError(Exception):
    """The candidate failed to answer; `str(error)` is one line."""


class SolverTimeoutError(SolverError):
    """The candidate took too long."""


class Solver(Protocol):
    """Who answers."""

    async def solve(self, case: Case, run: Run) -> str:
        """The answer. Raises `SolverError`; lets cancellation through."""


def make_solver(suite: Suite) -> Solver:
    """The suite's solver. Raises `InputError` when its code does not import."""
    if suite.place.task is not None:
        from workers.inspecting.solver import InspectSolver  # noqa: PLC0415 - an extra, and seconds to import

        return _TaskSolver(InspectSolver(suite.place.task))
    function = function_of(suite, "solver")
    return _CommandSolver(suite, suite.solver) if function is None else _PythonSolver(function)


@dataclass(frozen=True, slots=True)
class _TaskSolver:
    """An Inspect task."""

    inner: InspectSolver

    async def solve(self, case: Case, run: Run) -> str:
        from workers.inspecting.solver import SampleFailedError  # noqa: PLC0415

        try:
            return await self.inner.solve(case, run)
        except SampleFailedError as error:
            raise SolverError(str(error)) from error

    async def aclose(self) -> None:
        """End its eval."""
        await self.inner.aclose()


@dataclass(frozen=True, slots=True)
class _PythonSolver:
    """A function of the suite, async or plain."""

    function: Callable[..., object]
    told: set[str] = field(default_factory=set)
    """What its traceback was logged of: an error that a thousand runs end with is one traceback."""

    async def solve(self, case: Case, run: Run) -> str:
        try:
            answer = await call_guarded(self.function, case, run)
        except UserCodeError as error:
            if (fault := fault_of(error, OF_ANY_CODE)) is not None:
                let_go(error)  # at once: who is driven beside it wants files, too
                raise fault from error
            if error.place not in self.told:
                self.told.add(error.place)
                said = "".join(traceback.format_exception(error.__cause__))
                log.info("solver.raised", place=error.place, exception=redacted(said))
            raise SolverError(error.placed) from error
        if not isinstance(answer, str):
            kind = type(answer).__name__
            remedy = f": {_INSTEAD[kind]}" if kind in _INSTEAD else ""
            raise SolverError(f"the solver returned {kind}, an answer is text (str){remedy}")
        return _text(answer)


@dataclass(frozen=True, slots=True)
class _CommandSolver:
    """A program in the workspace: the prompt goes in, what it prints is the answer."""

    suite: Suite
    table: SolverTable

    async def solve(self, case: Case, run: Run) -> str:
        prompt = case.prompt.encode()
        command = self.table.command or ()
        # Beside the workspace, not in it: that is sealed, and the prompt is not the candidate's work.
        prompt_file = run.workspace.path.with_name(f"{run.workspace.path.name}.prompt")
        values = {**run.workspace.values, "prompt_file": str(prompt_file)}
        way = self._way_to_the_model(run)
        try:
            prompt_file.write_bytes(prompt)
            finished = await run_limited(
                fill(command, values),
                cwd=run.workspace.path,
                stdin=prompt if self.table.stdin else b"",
                env={**suite_environment(values), **way, **passed_on(self.table.env)},
                # Who asks the model may have to wait for room, which does not count: the worker's clock knows of it.
                timeout=math.inf if way else self.suite.timeout,
                limits=self.suite.limits.of_commands,
            )
        except CommandError as error:
            if (fault := fault_of_absence(command[0])) is not None:
                raise fault from error
            raise SolverError(str(error)) from error
        finally:
            prompt_file.unlink(missing_ok=True)
        if finished.timed_out:
            raise SolverTimeoutError(f"{command[0]}: {finished.outcome}")
        if finished.truncated or not finished.ok:
            told = f": {finished.last_line}" if finished.last_line else ""
            raise SolverError(f"{command[0]}: {finished.outcome}{told}")
        try:
            answer = finished.stdout.decode()
        except UnicodeDecodeError as error:
            raise SolverError(f"{command[0]}: its output is not UTF-8 (byte {error.start})") from None
        return answer.removesuffix("\n")

    def _way_to_the_model(self, run: Run) -> dict[str, str]:
        """By which a client that knows nothing of evalbus asks it; none where the suite names variables of its own."""
        if self.suite.model is None or any(name.startswith("OPENAI_") for name in self.table.env):
            return {}
        return run.model.environment


def _text(answer: str) -> str:
    """A plain str that can be sent: no lone surrogates, no subclass with a life of its own."""
    try:
        return answer.encode().decode()
    except UnicodeEncodeError as error:
        raise SolverError(f"the answer is not valid Unicode (a lone surrogate at {error.start})") from None
