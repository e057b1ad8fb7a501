"""Which edits to try, and in which order: where the failing tests went, and what is often wrong.

A line's suspicion is its Ochiai score: f / sqrt(F * (f + p)), with f and p the failing and passing tests that
run it, F all failing tests. A line that no failing test runs cannot be the fault.
"""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mend import calls, ingredients, insertions, operators, statements
from mend.text import Edit, Module

OPERATORS = (
    *operators.OPERATORS,
    *calls.OPERATORS,
    *statements.OPERATORS,
    *insertions.OPERATORS,
    *ingredients.OPERATORS,
)


@dataclass(frozen=True, slots=True)
class Spectrum:
    """What one test ran."""

    test: str
    passed: bool
    lines: frozenset[int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A version of the module that may be right."""

    edit: Edit
    source: str


def suspicion(spectra: Sequence[Spectrum]) -> dict[int, float]:
    """The Ochiai score of each line that a failing test ran."""
    failing = [each for each in spectra if not each.passed]
    scores = {}
    for line in sorted(set().union(*(each.lines for each in failing))):
        hit = sum(line in each.lines for each in failing)
        passing = sum(line in each.lines for each in spectra if each.passed)
        scores[line] = hit / math.sqrt(len(failing) * (hit + passing))
    return scores


def by_statement(module: Module, scores: Mapping[int, float]) -> dict[int, float]:
    """The same for all lines of a statement: a tracer names one of the lines it is written on."""
    spread: dict[int, float] = {}
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.stmt | ast.ExceptHandler):
            continue
        body = getattr(node, "body", None)
        last = max(node.lineno, body[0].lineno - 1) if isinstance(body, list) and body else node.end_lineno
        lines = range(node.lineno, last + 1)
        best = max((scores.get(line, 0.0) for line in lines), default=0.0)
        for line in lines:
            spread[line] = max(spread.get(line, 0.0), best)
    return spread


def edits(module: Module) -> Iterator[Edit]:
    """Every edit that any operator has for any node."""
    for node in ast.walk(module.tree):
        for operator in OPERATORS:
            # Before Python 3.12 some expressions cannot be written inside an f-string.
            with contextlib.suppress(SyntaxError, ValueError):
                yield from operator(module, node)


def candidates(source: str, spectra: Sequence[Spectrum], budget: int) -> list[Candidate]:
    """The most likely versions, the likeliest first; at most `budget`, no two the same."""
    module = Module(source)
    scores = by_statement(module, suspicion(spectra))
    ranked = sorted(
        (edit for edit in edits(module) if scores.get(edit.line, 0.0) > 0),
        key=lambda edit: (-scores[edit.line] / edit.cost, edit.start, edit.end, edit.operator, edit.text),
    )
    chosen: list[Candidate] = []
    seen = {source}
    for edit in ranked:
        changed = edit.applied_to(source)
        if changed not in seen:
            seen.add(changed)
            chosen.append(Candidate(edit, changed))
            if len(chosen) == budget:
                break
    return chosen


def tidied(source: str, edit: Edit) -> Edit:
    """The same edit without the brackets around it, if they change nothing."""
    if not (edit.text.startswith("(") and edit.text.endswith(")")):
        return edit
    bare = replace(edit, text=edit.text[1:-1])
    try:
        same = ast.dump(ast.parse(bare.applied_to(source))) == ast.dump(ast.parse(edit.applied_to(source)))
    except SyntaxError:
        return edit
    return bare if same else edit
