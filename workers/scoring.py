"""Scorers: how a sealed answer is judged.

Three things may come out, and they must not be mistaken for each other. The candidate was right, or wrong: a
`Score`. Or the judging itself went wrong (it crashed, ran out of time, gave no verdict that can be read): a
`ScorerError`, which makes the run a hole with that name. Counting it as a failure of the candidate would move
the pass rate for a reason that has nothing to do with the candidate.

    exact     the answer is the target
    includes  the answer contains the target
    regex     the pattern (the scorer's, or the case's target) is found in the answer
    numeric   the last number in the answer is the target, within a tolerance
    command   a program in the unpacked workspace; its exit code is the verdict
    python    a function of the suite, (case, sealed) -> Score or bool

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
from dataclasses import asdict, dataclass
from decimal import Context, Decimal
from pathlib import Path
from typing import Final, Protocol

from workers.cases import Case
from workers.commands import CommandError, Finished, fill, run_limited
from workers.solving import passed_on
from workers.suite import Suite, function_of
from workers.tables import ScorerTable
from workers.trees import TreeError, copy_tree
from workers.usercode import UserCodeError, call_guarded
from workers.workspace import suite_environment

__all__ = ["Score", "Scorer", "ScorerError", "Sealed", "make_scorer"]

MAX_VALUE: Final = 200
"""Characters of a score's value: it stands in the snapshot, a line for each run."""


class ScorerError(Exception):
    """The judging failed, not the candidate; `str(error)` is one line."""


@dataclass(frozen=True, slots=True)
class Score:
    """A verdict: one of the suite's bins, a value as text for the record, a note for the reader."""

    bin: str
    value: str
    note: str = ""


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
    function = function_of(suite, "scorer")
    if function is not None:
        return _PythonScorer(suite, function)
    match suite.scorer.kind:
        case "command":
            return _CommandScorer(suite)
        case "regex":
            return _RegexScorer(suite)
        case "numeric":
            return _Plain(suite, _is_number)
        case "includes":
            return _Plain(suite, _includes)
        case _:
            return _Plain(suite, _is_exact)


def _verdict(suite: Suite, passed: bool, value: str | None = None, note: str = "") -> Score:
    return Score(suite.bins[0 if passed else 1], value or ("1" if passed else "0"), note)


# --- comparing --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Compared:
    """What a comparison found; `value` when it is more than yes or no."""

    passed: bool
    value: str | None = None


@dataclass(frozen=True, slots=True)
class _Plain:
    """A scorer that only compares."""

    suite: Suite
    compare: Callable[[str, Case, ScorerTable], _Compared]

    async def score(self, case: Case, sealed: Sealed) -> Score:
        found = self.compare(sealed.answer, case, self.suite.scorer)
        return _verdict(self.suite, found.passed, found.value)


def _is_exact(answer: str, case: Case, table: ScorerTable) -> _Compared:
    return _Compared(_as_compared(answer, table) in [_as_compared(text, table) for text in _targets(case)])


def _includes(answer: str, case: Case, table: ScorerTable) -> _Compared:
    targets = [_as_compared(text, table) for text in _targets(case)]
    if "" in targets:
        raise ScorerError("the target is empty, which every answer includes")
    return _Compared(any(target in _as_compared(answer, table) for target in targets))


def _as_compared(text: str, table: ScorerTable) -> str:
    text = text.strip() if table.strip else text
    return text.casefold() if table.ignore_case else text


def _targets(case: Case) -> list[str]:
    """The target as texts, any of which counts. Numbers are their JSON text."""
    given = case.target if isinstance(case.target, list) else [case.target]
    if not given:
        raise ScorerError("the target is an empty list")
    texts = []
    for each in given:
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, int | float) and not isinstance(each, bool):
            texts.append(json.dumps(each))
        else:
            what = "the case has no target" if each is None else f"the target holds {type(each).__name__}"
            raise ScorerError(f"{what}, text or a number is needed")
    return texts


# --- numbers ----------------------------------------------------------------------------------------------

_NUMBER: Final = re.compile(
    r"""
    (?<![A-Za-z_0-9.])            # not inside a word, a version, a number that was read already
    (?:(?<!\))[-+\u2212])?        # a sign, also the typographic minus; "f(2)-3" is a difference
    (?:\d{1,3}(?:,\d{3})+(?!\d)  # 1,234,567
      |\d+|(?=\.\d))             # 1234567 or .5
    (?:\.\d+)?(?:[eE][-+]?\d+)?
    """,
    re.VERBOSE,
)
_EXACT: Final = Context(prec=60, traps=[])
"""Decimals: with floats, 1.1 is not within 0.1 of 1. Without traps: what is too large becomes infinite."""


def _is_number(answer: str, case: Case, table: ScorerTable) -> _Compared:
    target = _target_number(case)
    found = _NUMBER.findall(answer)
    number = _decimal(found[-1]) if found else None
    if number is None:
        return _Compared(False, "nan")
    allowed = _EXACT.max(Decimal(str(table.tolerance)), _EXACT.multiply(Decimal(str(table.relative)), abs(target)))
    return _Compared(_EXACT.abs(_EXACT.subtract(number, target)) <= allowed, str(number))


def _target_number(case: Case) -> Decimal:
    given = case.target
    text = str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given
    number = _decimal(text.strip()) if isinstance(text, str) and _NUMBER.fullmatch(text.strip()) else None
    if number is None:
        raise ScorerError(f"the target {given!r} is not a number"[:200])
    return number


def _decimal(text: str) -> Decimal | None:
    number = _EXACT.create_decimal(text.replace(",", "").replace("\u2212", "-"))
    return number if number.is_finite() else None


# --- searching --------------------------------------------------------------------------------------------

_FOUND: Final = 10
_NOT_FOUND: Final = 11
_SEARCH: Final = f"""
import json, re, sys
asked = json.load(sys.stdin)
found = any(re.search(pattern, asked["answer"], asked["flags"]) for pattern in asked["patterns"])
sys.exit({_FOUND} if found else {_NOT_FOUND})
"""


@dataclass(frozen=True, slots=True)
class _RegexScorer:
    """A search in a process of its own.

    Some patterns take exponential time on some answers, and Python's `re` can neither be interrupted nor lets
    other threads run meanwhile: in this process, one answer would silence the scorer until its lease is gone.
    """

    suite: Suite

    async def score(self, case: Case, sealed: Sealed) -> Score:
        table = self.suite.scorer
        patterns = [table.pattern] if table.pattern is not None else _targets(case)
        for pattern in patterns:
            try:
                re.compile(pattern)
            except (re.error, RecursionError, OverflowError) as error:
                raise ScorerError(f"{pattern[:100]!r} is not a regular expression: {error}") from None
        asked = {
            "patterns": patterns,
            "answer": sealed.answer,
            "flags": int(re.IGNORECASE if table.ignore_case else 0),
        }
        finished = await _run(
            [sys.executable, "-I", "-S", "-c", _SEARCH],
            self.suite,
            cwd=Path(tempfile.gettempdir()),
            stdin=json.dumps(asked).encode(),
        )
        if finished.exit_code not in (_FOUND, _NOT_FOUND):
            raise ScorerError(f"searching {patterns[0][:100]!r}: {_told(finished)}")
        return _verdict(self.suite, finished.exit_code == _FOUND)


# --- programs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CommandScorer:
    """A program in the workspace, with the hidden files copied over it."""

    suite: Suite

    async def score(self, case: Case, sealed: Sealed) -> Score:
        table = self.suite.scorer
        with tempfile.TemporaryDirectory(prefix="evalbus-score-") as own:
            outside = Path(own)
            workspace = sealed.workspace or outside / "workspace"
            workspace.mkdir(exist_ok=True)
            (outside / "answer.txt").write_text(sealed.answer, encoding="utf-8", newline="")
            (outside / "case.json").write_text(json.dumps(asdict(case)), encoding="utf-8")
            if table.files is not None:
                try:
                    copy_tree(self.suite.root / table.files.replace("{id}", case.id), workspace, _LEFT_BEHIND)
                except TreeError as error:
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
            return _verdict(self.suite, False, note=_told(finished))
        raise ScorerError(f"{command[0]}: {_told(finished)}")


_LEFT_BEHIND: Final = ("__pycache__", "*.pyc")


def _end_of(finished: Finished) -> int | str:
    """How it ended, as `pass_on` and `fail_on` name it."""
    if finished.timed_out:
        return "timeout"
    if finished.truncated:
        return "output"
    return "signal" if finished.exit_code is None else finished.exit_code


def _told(finished: Finished) -> str:
    return f"{finished.outcome}: {finished.last_line}" if finished.last_line else finished.outcome


async def _run(
    argv: Sequence[str], suite: Suite, *, cwd: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> Finished:
    timeout, limits = suite.scorer.timeout, suite.limits.of_commands
    try:
        return await run_limited(argv, cwd=cwd, stdin=stdin, env=env, timeout=timeout, limits=limits)
    except CommandError as error:
        raise ScorerError(str(error)) from error


# --- functions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PythonScorer:
    """A function of the suite, async or plain."""

    suite: Suite
    function: Callable[..., object]

    async def score(self, case: Case, sealed: Sealed) -> Score:
        try:
            async with asyncio.timeout(self.suite.scorer.timeout):
                verdict = await call_guarded(self.function, case, sealed)
        except UserCodeError as error:
            raise ScorerError(error.problem) from error
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
