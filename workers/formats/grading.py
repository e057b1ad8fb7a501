"""How the basic classes of OpenAI evals compare an answer with the ideal ones.

As in its `evals/elsuite/basic` and `evals/elsuite/utils.py`: Match wants the answer to begin with an ideal one,
Includes to hold one, FuzzyMatch that one holds the other after case, punctuation and articles are taken out, JsonMatch
that both are the same JSON.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping
from typing import Final

from workers.cases import Case
from workers.scoring import ScorerError, Sealed

__all__ = ["CLASSES", "fuzzy_match", "includes", "includes_any_case", "json_match", "match"]

_ARTICLES: Final = re.compile(r"\b(a|an|the)\b")


def match(case: Case, sealed: Sealed) -> bool:
    """Whether the answer begins with an ideal one."""
    return any(sealed.answer.startswith(ideal) for ideal in _ideals(case))


def includes(case: Case, sealed: Sealed) -> bool:
    """Whether the answer holds an ideal one."""
    return any(ideal in sealed.answer for ideal in _ideals(case))


def includes_any_case(case: Case, sealed: Sealed) -> bool:
    """Whether the answer holds an ideal one, in whatever case."""
    return any(ideal.lower() in sealed.answer.lower() for ideal in _ideals(case))


def fuzzy_match(case: Case, sealed: Sealed) -> bool:
    """Whether one holds the other, normalised."""
    answer = _normalised(sealed.answer)
    ideals = [_normalised(ideal) for ideal in _ideals(case)]
    return any(answer == ideal if "" in (answer, ideal) else answer in ideal or ideal in answer for ideal in ideals)


def json_match(case: Case, sealed: Sealed) -> bool:
    """Whether the answer is the same JSON as an ideal one; an answer that is no JSON is wrong.

    Raises ScorerError for an ideal that is none.
    """
    try:
        answer = json.loads(sealed.answer)
    except (ValueError, RecursionError):
        return False
    try:
        return any(_same(json.loads(ideal), answer) for ideal in _ideals(case))
    except (ValueError, RecursionError):
        raise ScorerError("an ideal answer is no JSON") from None


def _same(left: object, right: object) -> bool:
    """Equal, where a boolean is no number."""
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _ideals(case: Case) -> list[str]:
    target = case.target if isinstance(case.target, list) else [case.target]
    if not target or not all(isinstance(one, str) for one in target):
        raise ScorerError("the case's target holds no ideal answer")
    return [one for one in target if isinstance(one, str)]


def _normalised(text: str) -> str:
    bare = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", bare).split())


CLASSES: Final[Mapping[str, Callable[[Case, Sealed], bool]]] = {
    "match": match,
    "includes": includes,
    "fuzzy_match": fuzzy_match,
    "json_match": json_match,
}
"""By the module's name in `evals.elsuite.basic`."""
