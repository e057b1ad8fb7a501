"""The `[scorer]` table of a suite: who judges, and how.

It stands apart from the other tables because one kind of scorer is itself a model, with a table like the candidate's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import PlainValidator, model_validator

from workers.judging.table import IdentityTable, JudgeModelTable
from workers.tables import (
    Command,
    Flag,
    Function,
    Inside,
    Natural,
    Seconds,
    Table,
    Text,
    Tolerance,
    Variables,
    check_placeholders,
)

__all__ = ["ScorerTable", "is_file_name"]

_MOST_GRADES: Final = 100
_LONGEST_GRADE: Final = 40  # characters: a grade stands in the value of each score


def _grades(written: object) -> dict[str, str]:
    if not isinstance(written, Mapping) or not written or len(written) > _MOST_GRADES:
        raise ValueError('grades must be a table of grade and bin, such as { C = "pass", I = "fail" }')
    for grade, bin_ in written.items():
        if not isinstance(grade, str) or not isinstance(bin_, str) or not grade.strip() or len(grade) > _LONGEST_GRADE:
            raise ValueError(f"grades: {grade!r} = {bin_!r} is no grade (1 to {_LONGEST_GRADE} characters) and its bin")
    return dict(written)


def _ending(given: object) -> int | str:
    if isinstance(given, str) and given in ("timeout", "signal"):
        return given
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise ValueError(f'{given!r} is neither an exit code nor "timeout" or "signal"')


def is_file_name(text: str) -> bool:
    """Whether a text in a suite is taken for the name of the file that holds it: one word that ends as such a name."""
    return not re.search(r"\s", text) and text.endswith((".txt", ".md"))


Kind = Literal["exact", "includes", "regex", "numeric", "command", "python", "model"]


class ScorerTable(Table):
    """Who judges. A field that the kind does not use is an error."""

    table = "scorer"

    kind: Kind
    """How it judges; which of the other fields are used follows from it."""
    timeout: Seconds = 60.0
    """Wall time of judging one run; what takes longer has no score, unless `fail_on` has "timeout"."""
    ignore_case: Flag = False
    """exact, includes, regex; model: of the grade."""
    strip: Flag = True
    """exact, includes: blanks at both ends do not count."""
    pattern: Text | None = None
    """regex: searched in the answer; when left out, the case's target is the pattern."""
    tolerance: Tolerance = 1e-6
    """numeric: the largest difference that passes."""
    relative: Tolerance = 0.0
    """numeric: the same as a share of the target; the larger one counts."""
    command: Command | None = None
    """command: as a solver's, with `{answer_file}` and `{case_file}` for `{prompt_file}`."""
    files: Inside | None = None
    """command: a directory copied over the workspace before it runs, such as hidden tests; `{id}`."""
    pass_on: tuple[Natural, ...] = (0,)
    """command: exit codes that pass."""
    fail_on: tuple[Annotated[int | str, PlainValidator(_ending)], ...] = (1,)
    """command: exit codes that fail, and "timeout", "signal"; anything else is a scorer's error."""
    env: Variables = ()
    """command: as a solver's."""
    python: Function | None = None
    """python: (case, sealed) -> Score or bool."""
    prompt: Inside | None = None
    """model: the file with the question; `{input}` `{target}` `{answer}` `{metadata}` are filled in."""
    system: Text | None = None
    """model: the judge's instructions, as text, or the name of a file with them that ends in .txt or .md."""
    parse: Text = r"GRADE:\s*(\w+)"
    """model: a regular expression; the first group of its last match is the grade."""
    grades: Annotated[dict[str, str], PlainValidator(_grades)] | None = None
    """model: the scale, each grade with its bin."""
    model: JudgeModelTable = JudgeModelTable()
    """model: who is asked."""
    identity: IdentityTable = IdentityTable()
    """model: who must have answered."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> ScorerTable:
        used = _USES[self.kind]
        for name in sorted(self.model_fields_set - {"kind", "timeout", *used}):
            kinds = ", ".join(kind for kind, fields in _USES.items() if name in fields)
            raise ValueError(f"{name} is not used by the kind {self.kind!r} (only by {kinds})")
        if self.kind == "command" and self.command is None:
            raise ValueError("the kind 'command' needs a command")
        if self.kind == "python" and self.python is None:
            raise ValueError("the kind 'python' needs python, a function")
        self._check_judge()
        if both := [code for code in self.pass_on if code in self.fail_on]:
            raise ValueError(f"exit code {both[0]} cannot both pass and fail")
        if self.pattern is not None:
            _compiled("pattern", self.pattern)
        check_placeholders(self.command, ("prompt_file",))
        return self

    def _check_judge(self) -> None:
        if self.kind != "model":
            return
        if self.prompt is None:
            raise ValueError("the kind 'model' needs prompt, the file with the question")
        if self.grades is None:
            raise ValueError('the kind \'model\' needs grades, such as { C = "pass", I = "fail" }')
        if _compiled("parse", self.parse).groups == 0:
            raise ValueError(f"parse {self.parse!r} has no group to be the grade, such as in 'GRADE: (\\w+)'")
        if self.ignore_case and len({grade.casefold() for grade in self.grades}) < len(self.grades):
            raise ValueError("grades: two are the same when the case is ignored")


def _compiled(field: str, pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{field} {pattern!r} is not a regular expression: {error}") from None


_USES: Final[Mapping[str, tuple[str, ...]]] = {
    "exact": ("ignore_case", "strip"),
    "includes": ("ignore_case", "strip"),
    "regex": ("ignore_case", "pattern"),
    "numeric": ("tolerance", "relative"),
    "command": ("command", "files", "pass_on", "fail_on", "env"),
    "python": ("python",),
    "model": ("prompt", "system", "parse", "grades", "ignore_case", "model", "identity"),
}
