"""What one line of an export claims, and the error that names the line when the claim does not hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from bus.errors import ViolationError
from bus.models import Answer

__all__ = ["DiffersError", "Told", "is_same", "says"]

_LONGEST = 300  # characters of either side in a message
_LONGEST_PROBLEM = 1_000  # characters of all of it: two sides and the names around them


class Told(NamedTuple):
    """One decision as the export tells it. There are millions, and a tuple is made several times faster."""

    line: int
    """In the file, from 1."""
    id: str
    """As it stands there: `<entry>/<part>`, or `<entry>` for a fence operation that is no part of a step."""
    entry: str
    part: int
    """From 1; 0 for an operation that is no part of a step."""
    fence: str
    op: str
    verb: str
    reason: str | None
    envelope: Mapping[str, Any]
    args: Mapping[str, Any]
    answer: Mapping[str, Any]

    @property
    def refused(self) -> bool:
        """Nothing of its step stands but what the refusal itself keeps."""
        return self.verb in ("reject", "replay", "in_doubt")

    @property
    def ms(self) -> int:
        """The server's time at which it was recorded."""
        return int(self.entry.partition("-")[0])

    @property
    def name(self) -> str:
        """`entry 1764453900123-0/2 histogram.score`."""
        return f"entry {self.id} {self.fence}.{self.op}"


class DiffersError(ViolationError):
    """The history is not what it says it is. `line` is where that shows first, `problem` what is wrong there."""

    def __init__(self, source: str, line: int, problem: str) -> None:
        """`source`: the file, or the batch."""
        self.line, self.problem = line, _shown(problem)
        super().__init__(f"{' '.join(source.split())}:{line}: {self.problem}")


def _shown(problem: str) -> str:
    """It quotes what somebody wrote into the file: no more than can be read, and nothing that a terminal would obey."""
    shown = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in " ".join(problem.split()))
    return shown if len(shown) <= _LONGEST_PROBLEM else shown[:_LONGEST_PROBLEM] + "…"


def says(verb: str, reason: str | None, answer: Mapping[str, object]) -> str:
    """A decision in words: `reject stale_gen {"state":"OPEN"}`."""
    words = f"{verb} {reason}" if reason else verb
    if answer:
        words += " " + json.dumps(answer, ensure_ascii=False, separators=(",", ":"), default=str)
    return words if len(words) <= _LONGEST else words[:_LONGEST] + "…"


def is_same(told: Told, derived: Answer) -> bool:
    """Whether the model decided what was recorded, with the same answer."""
    if (told.verb, told.reason) != (derived.verb.value, derived.reason) or len(told.answer) != len(derived.fields):
        return False
    fields = derived.fields
    return all(name in fields and _agree(said, fields[name]) for name, said in told.answer.items())


def _agree(said: object, derived: object) -> bool:
    if said == derived:
        return type(said) is type(derived) or not isinstance(said, bool | int | float)
    if derived == []:  # an empty table of Lua's has no other way to say "list"
        return said == {}
    if isinstance(derived, dict) and isinstance(said, str):  # a tool's arguments travel as text
        try:
            return bool(json.loads(said) == derived)
        except ValueError:
            return False
    return False
