"""The grade in what a judge said, by the suite's pattern and scale.

The search is made in a process of its own, like that of the scorer of kind `regex`: some patterns take exponential time
on some texts, the text is a model's, and in this process it would silence the scorer until its leases are gone.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.processes.commands import CommandError, run_limited
from workers.scoring import ScorerError
from workers.suite import Suite

__all__ = ["Grade", "grade_of"]

_TIME: Final = 10.0  # seconds
_SEARCH: Final = """
import json, re, sys
asked = json.load(sys.stdin)
last = None
for last in re.finditer(asked["pattern"], asked["said"], asked["flags"]):
    pass
json.dump(None if last is None else last.group(1), sys.stdout)
"""


@dataclass(frozen=True, slots=True)
class Grade:
    """A grade as the scale has it, and its bin."""

    name: str
    bin: str


async def grade_of(said: str, suite: Suite) -> Grade | None:
    """The grade, or None when there is none, or one that is not on the scale. Raises ScorerError: the search failed."""
    table = suite.scorer
    asked = {"pattern": table.parse, "said": said, "flags": int(re.IGNORECASE if table.ignore_case else 0)}
    try:
        finished = await run_limited(
            [sys.executable, "-I", "-S", "-c", _SEARCH], cwd=Path(tempfile.gettempdir()),
            stdin=json.dumps(asked).encode(), timeout=_TIME, limits=suite.limits.of_commands,
        )  # fmt: skip
    except CommandError as error:
        raise ScorerError(str(error)) from error
    if finished.exit_code != 0:
        raise ScorerError(f"searching {table.parse[:100]!r} in what the judge said: {finished.outcome}")
    found = json.loads(finished.stdout)
    return None if found is None else _on_the_scale(found, suite)


def _on_the_scale(found: str, suite: Suite) -> Grade | None:
    for name, bin_ in (suite.scorer.grades or {}).items():
        same = found.casefold() == name.casefold() if suite.scorer.ignore_case else found == name
        if same:
            return Grade(name, bin_)
    return None
