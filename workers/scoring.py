"""Scorers: how a sealed answer is judged.

Three things may come out, and they must not be mistaken for each other. The candidate was right, or wrong: a
`Score`. Or the judging itself went wrong (it crashed, ran out of time, gave no verdict that can be read): a
`ScorerError`, which makes the run a hole with that name. Counting it as a failure of the candidate would move
the pass rate for a reason that has nothing to do with the candidate. And a machine that can't judge (its disk is full)
is neither: that is a `MachineError`, and another scorer's run.

    exact     the answer is the target
    includes  the answer contains the target
    regex     the pattern (the scorer's, or the case's target) is found in the answer
    numeric   the last number in the answer is the target, within a tolerance
    command   a program in the unpacked workspace; its exit code is the verdict
    python    a function of the suite, (case, sealed) -> Score or bool
    model     a model's grade: `workers.judging`

A target that is a list means any of its items (exact, includes, regex). An answer without a number is wrong, a
target without one is the suite's mistake, and so a `ScorerError`.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from bus.errors import EvalbusError
from workers.cases import Case
from workers.comparing import Compare, TargetError, includes, is_exact, is_number, patterns_of
from workers.processes.commands import CommandError, Finished, fill, passed_on, run_limited
from workers.processes.machine import OF_ANY_CODE, OF_ITS_OWN, fault_of
from workers.processes.searching import SearchError, is_found
from workers.programs import fault_of_absence
from workers.suite import Suite, function_of
from workers.trees import TreeError
from workers.usercode import UserCodeError, call_apart, describe
from workers.workspace import copy_of_case, suite_environment

if TYPE_CHECKING:
    from workers.inspecting.scorer import InspectScorer

__all__ = ["ComparingScorer", "Score", "Scorer", "ScorerError", "Sealed", "make_scorer"]

MAX_VALUE: Final = 200
"""Characters of a score's value: it stands in the snapshot, a line for each run."""


class ScorerError(Exception):
    """The judging failed, not the candidate; `str(error)` is one line. `why`: the name of the hole."""

    why = "scorer_error"


@dataclass(frozen=True, slots=True)
class Score:
    """A verdict: one of the suite's bins, a value as text for the record, a note for the reader."""

    bin: str
    value: str
    note: str = ""
    kept: bytes | None = None
    """What belongs to the verdict and is too long for its value, which then names it: kept as an artifact."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What is judged: the answer, and the unpacked workspace if the suite seals one. It is the scorer's copy."""

    answer: str
    workspace: Path | None = None


class Scorer(Protocol):
    """Who judges."""

    async def score(self, case: Case, sealed: Sealed) -> Score:
        """The verdict, in one of the suite's bins. Raises `ScorerError`; lets cancellation through."""


def make_scorer(suite: Suite) -> Scorer:
    """The suite's scorer. Raises `InputError` when its code does not import."""
    if suite.place.task is not None:
        from workers.inspecting.scorer import InspectScorer  # noqa: PLC0415 - an extra, and seconds to import

        return _TaskScorer(suite, InspectScorer(suite.place.task))
    function = function_of(suite, "scorer")
    if function is not None:
        return _PythonScorer(suite, function)
    match suite.scorer.kind:
        case "command":
            return _CommandScorer(suite)
        case "regex":
            return _RegexScorer(suite)
        case "numeric":
            return ComparingScorer(suite, is_number)
        case "includes":
            return ComparingScorer(suite, includes)
        case "exact":
            return ComparingScorer(suite, is_exact)
        case kind:
            raise AssertionError(f"a scorer of the kind {kind} is not made here")


def _verdict(suite: Suite, passed: bool, value: str | None = None, note: str = "") -> Score:
    return Score(suite.bins[0 if passed else 1], value or ("1" if passed else "0"), note)


@dataclass(frozen=True, slots=True)
class ComparingScorer:
    """A scorer that needs no more than the two texts."""

    suite: Suite
    compare: Compare

    async def score(self, case: Case, sealed: Sealed) -> Score:
        """The verdict, at once. Raises `ScorerError`."""
        return self.compared(case, sealed)

    def compared(self, case: Case, sealed: Sealed) -> Score:
        """As `score`, to which nothing is left to wait for."""
        try:
            found = self.compare(sealed.answer, case.target, self.suite.scorer)
        except TargetError as error:
            raise ScorerError(str(error)) from error
        return _verdict(self.suite, found.passed, found.value)


# --- searching --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RegexScorer:
    """A search for the pattern, or for those of the target."""

    suite: Suite

    async def score(self, case: Case, sealed: Sealed) -> Score:
        table = self.suite.scorer
        try:
            patterns = patterns_of(case.target, table)
        except TargetError as error:
            raise ScorerError(str(error)) from error
        flags = re.IGNORECASE if table.ignore_case else 0
        try:
            found = await is_found(
                patterns, sealed.answer, flags=flags, timeout=table.timeout, limits=self.suite.limits.of_commands
            )
        except SearchError as error:
            raise ScorerError(str(error)) from error
        return _verdict(self.suite, found)


# --- programs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CommandScorer:
    """A program in the workspace, with the hidden files copied over it."""

    suite: Suite

    async def score(self, case: Case, sealed: Sealed) -> Score:
        table = self.suite.scorer
        # A command may leave what cannot be removed: litter, and no reason to lose its verdict.
        with tempfile.TemporaryDirectory(prefix="evalbus-score-", ignore_cleanup_errors=True) as own:
            outside = Path(own)
            workspace = (sealed.workspace or outside / "workspace").absolute()
            workspace.mkdir(exist_ok=True)
            (outside / "answer.txt").write_text(sealed.answer, encoding="utf-8", newline="")
            (outside / "case.json").write_text(json.dumps(asdict(case)), encoding="utf-8")
            if table.files is not None:
                try:
                    copy_of_case(self.suite, table.files, case, workspace)
                except TreeError as error:
                    if (fault := fault_of(error, OF_ITS_OWN)) is not None:
                        raise fault from error
                    raise ScorerError(f"the hidden files cannot be copied: {error}") from error
            values = {
                "python": sys.executable,
                "suite": str(self.suite.root),
                "workspace": str(workspace),
                "id": case.id,
                "answer_file": str(outside / "answer.txt"),
                "case_file": str(outside / "case.json"),
            }
            command = table.command or ()
            env = {**suite_environment(values), **passed_on(table.env)}
            finished = await _run(fill(command, values), self.suite, cwd=workspace, env=env)
        if _end_of(finished) in table.pass_on:
            return _verdict(self.suite, True)
        if _end_of(finished) in table.fail_on:
            return _verdict(self.suite, False, note=finished.told)
        raise ScorerError(f"{command[0]}: {finished.told}")


def _end_of(finished: Finished) -> int | str:
    """How it ended, as `pass_on` and `fail_on` name it."""
    if finished.timed_out:
        return "timeout"
    if finished.truncated:
        return "output"
    return "signal" if finished.exit_code is None else finished.exit_code


async def _run(
    argv: Sequence[str], suite: Suite, *, cwd: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> Finished:
    timeout, limits = suite.scorer.timeout, suite.limits.of_commands
    try:
        return await run_limited(argv, cwd=cwd, stdin=stdin, env=env, timeout=timeout, limits=limits)
    except CommandError as error:
        if (fault := fault_of_absence(argv[0])) is not None:
            raise fault from error
        raise ScorerError(str(error)) from error


# --- functions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TaskScorer:
    """An Inspect task's."""

    suite: Suite
    inner: InspectScorer

    async def score(self, case: Case, sealed: Sealed) -> Score:
        try:
            async with asyncio.timeout(self.suite.scorer.timeout):
                passed, value, kept = await self.inner.score(case, sealed.answer)
        except TimeoutError:
            raise ScorerError(f"timed out after {self.suite.scorer.timeout:g} s") from None
        except EvalbusError:
            raise
        except Exception as error:
            if (fault := fault_of(error, OF_ANY_CODE)) is not None:
                raise fault from error
            raise ScorerError(describe(error)) from error
        return replace(_verdict(self.suite, passed, value), kept=kept)

    async def aclose(self) -> None:
        self.inner.close()


@dataclass(frozen=True, slots=True)
class _PythonScorer:
    """A function of the suite, async or plain."""

    suite: Suite
    function: Callable[..., object]

    async def score(self, case: Case, sealed: Sealed) -> Score:
        try:
            async with asyncio.timeout(self.suite.scorer.timeout):
                verdict = await call_apart(self.function, case, sealed)
        except UserCodeError as error:
            if (fault := fault_of(error, OF_ANY_CODE)) is not None:
                raise fault from error
            raise ScorerError(error.placed) from error
        except TimeoutError:
            raise ScorerError(f"timed out after {self.suite.scorer.timeout:g} s") from None
        if isinstance(verdict, bool):
            return _verdict(self.suite, verdict)
        if not isinstance(verdict, Score):
            raise ScorerError(f"the scorer returned {type(verdict).__name__}, not a Score or a bool")
        return _checked(verdict, self.suite.bins)


def _checked(score: Score, bins: Sequence[str]) -> Score:
    """The score, if it can be recorded as it is: nothing is cut or put into the nearest bin."""
    if score.bin not in bins:
        raise ScorerError(f"the bin {str(score.bin)[:60]!r} is not declared (the bins are {', '.join(bins)})")
    for name, text in (("value", score.value), ("note", score.note)):
        if not isinstance(text, str):
            raise ScorerError(f"the score's {name} is {type(text).__name__}, it must be text")
    if len(score.value) > MAX_VALUE:
        raise ScorerError(f"the score's value has {len(score.value)} characters, the most is {MAX_VALUE}")
    return score
