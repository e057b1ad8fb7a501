"""Comparing an answer with a target: exactly, as a part, as a number. Pure: no process, no suite.

A target that is a list means any of its items. An answer without a number is wrong: the candidate was asked for
one. A target without one is the suite's mistake, a `TargetError`, whatever the answer was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Final, TypeAlias

from workers.cases import Json
from workers.scorer_table import ScorerTable

__all__ = ["Compare", "Compared", "TargetError", "includes", "is_exact", "is_number", "patterns_of", "target_trouble"]


class TargetError(Exception):
    """A target that nothing can be compared with; `str(error)` is one line."""


@dataclass(frozen=True, slots=True)
class Compared:
    """What a comparison found; `value` when it is more than yes or no."""

    passed: bool
    value: str | None = None


Compare: TypeAlias = Callable[[str, Json, ScorerTable], Compared]


def target_trouble(target: Json, table: ScorerTable) -> str | None:
    """Why no answer can be compared with that target, whatever it says, as one line; None when one can.

    A judge that is a program, a function or a model makes of the target what it likes: there is never anything wrong.
    """
    try:
        match table.kind:
            case "exact":
                _texts(target)
            case "includes":
                includes("", target, table)
            case "regex":
                patterns_of(target, table)
            case "numeric":
                _wanted(target)
    except TargetError as error:
        return str(error)
    return None


def is_exact(answer: str, target: Json, table: ScorerTable) -> Compared:
    """Whether the answer is the target."""
    return Compared(_as_compared(answer, table) in [_as_compared(text, table) for text in _texts(target)])


def includes(answer: str, target: Json, table: ScorerTable) -> Compared:
    """Whether the answer contains the target. Raises TargetError for an empty one."""
    targets = [_as_compared(text, table) for text in _texts(target)]
    if "" in targets:
        raise TargetError("the target is empty, which every answer includes")
    return Compared(any(text in _as_compared(answer, table) for text in targets))


def patterns_of(target: Json, table: ScorerTable) -> list[str]:
    """The regular expressions to search for: the scorer's own, or the target's. Raises TargetError for what is none."""
    patterns = [table.pattern] if table.pattern is not None else _texts(target)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise TargetError(f"{pattern[:100]!r} is not a regular expression: {error}") from None
    return patterns


def _as_compared(text: str, table: ScorerTable) -> str:
    text = text.strip() if table.strip else text
    return text.casefold() if table.ignore_case else text


def _texts(target: Json) -> list[str]:
    """The target as texts, any of which counts. Numbers are their JSON text."""
    given = target if isinstance(target, list) else [target]
    if not given:
        raise TargetError("the target is an empty list")
    texts = []
    for each in given:
        if isinstance(each, str):
            texts.append(each)
        elif isinstance(each, int | float) and not isinstance(each, bool):
            texts.append(json.dumps(each))
        else:
            what = "the case has no target" if each is None else f"the target holds {type(each).__name__}"
            raise TargetError(f"{what}, text or a number is needed")
    return texts


# --- numbers ----------------------------------------------------------------------------------------------

_NUMBER: Final = re.compile(
    r"""
    (?<![A-Za-z_0-9.])            # not inside a word, a version, or a number that was begun already
    (?:(?<!\))[-+\u2212])?        # a sign, also the typographic minus; "f(2)-3" is a difference
    (?:\d{1,3}(?:,\d{3})+(?!\d)   # 1,234,567
      |\d+|(?=\.\d))              # 1234567, or .5
    (?:\.\d+)?(?:[eE][-+]?\d+)?
    """,
    re.VERBOSE,
)
_EXACT: Final = Context(prec=60, traps=[])
"""Decimals: with floats, 1.1 is not within 0.1 of 1. Without traps: what is too large becomes infinite."""


def is_number(answer: str, target: Json, table: ScorerTable) -> Compared:
    """Whether the last number in the answer is the target, within the tolerance; the value is that number."""
    wanted = _wanted(target)
    found = _NUMBER.findall(answer)
    number = _decimal(found[-1]) if found else None
    if number is None:
        return Compared(False, "nan")
    share = _EXACT.multiply(Decimal(str(table.relative)), _EXACT.abs(wanted))
    allowed = _EXACT.max(Decimal(str(table.tolerance)), share)
    return Compared(_EXACT.abs(_EXACT.subtract(number, wanted)) <= allowed, str(number))


def _wanted(target: Json) -> Decimal:
    text = str(target).strip() if isinstance(target, str | int | float) and not isinstance(target, bool) else ""
    number = _decimal(text) if _NUMBER.fullmatch(text) else None
    if number is None:
        raise TargetError(
            "the case has no target, a number is needed"
            if target is None
            else f"the target {target!r} is not a number"[:200]
        )
    return number


def _decimal(text: str) -> Decimal | None:
    number = _EXACT.create_decimal(text.replace(",", "").replace("\u2212", "-"))
    return number if number.is_finite() else None
