"""The release gate: one word on a closed batch, and the exit code that goes with it.

A gate that reads an open batch gives a word that may change after somebody acted on it. So this one has four
words, and for a batch that is open, or that closed below its quorum, the word is `undecided`: it is neither
green nor red.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from bus.errors import InputError
from bus.port import BatchStatus

__all__ = ["GateRules", "GateVerdict", "GateWord", "Judged", "judge_gate"]


class GateWord(StrEnum):
    """What the gate says."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_SET = "not set"
    """The batch is closed, and the suite asks for nothing."""
    UNDECIDED = "undecided"
    """The batch is open, or closed below its quorum: there is no number to judge."""


@dataclass(frozen=True, slots=True)
class GateRules:
    """What a suite asks of a closed batch; None where it asks nothing."""

    min_pass_rate: float | None = None
    """At least this share of the scored runs must pass, in [0, 1]."""
    max_holes: int | None = None
    """At most so many runs may have ended without a score."""

    @classmethod
    def from_mapping(cls, rules: Mapping[str, float | int]) -> GateRules:
        """Read the fields of a suite's `[gate]`. Raises `InputError` that names the field."""
        known = ("min_pass_rate", "max_holes")
        for name in rules:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                remedy = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                raise InputError(f"gate.{name} is not a rule", remedy=remedy)
        rate, holes = rules.get("min_pass_rate"), rules.get("max_holes")
        if rate is not None and (isinstance(rate, bool) or not 0 <= rate <= 1):
            raise InputError(f"gate.min_pass_rate is {rate}", remedy="a number from 0 to 1")
        if holes is not None and (isinstance(holes, bool) or not (0 <= holes < math.inf) or holes % 1):
            raise InputError(f"gate.max_holes is {holes}", remedy="a whole number, 0 or more")
        return cls(None if rate is None else float(rate), None if holes is None else int(holes))

    def __str__(self) -> str:
        """`pass_rate >= 0.6 and holes <= 0`; empty when nothing is asked."""
        asked = []
        if self.min_pass_rate is not None:
            asked.append(f"pass_rate >= {self.min_pass_rate}")
        if self.max_holes is not None:
            asked.append(f"holes <= {self.max_holes}")
        return " and ".join(asked)


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The gate's word. `rule` is empty when none is set; `why` has a clause for each rule not met."""

    word: GateWord
    rule: str
    why: tuple[str, ...] = ()

    @property
    def passed(self) -> bool | None:
        """True, False, or None when there was nothing to judge or nothing to judge by."""
        return {GateWord.PASSED: True, GateWord.FAILED: False}.get(self.word)

    @property
    def exit_code(self) -> int:
        """0 passed, or no gate is set · 1 failed · 3 undecided."""
        return {GateWord.PASSED: 0, GateWord.NOT_SET: 0, GateWord.FAILED: 1, GateWord.UNDECIDED: 3}[self.word]


class Judged(Protocol):
    """What the gate needs to know of a batch; `workers.outcome.Outcome` is one."""

    @property
    def status(self) -> BatchStatus:
        """Where the batch stands."""

    @property
    def intended(self) -> int:
        """Runs that were declared."""

    @property
    def quorum(self) -> int:
        """Runs that must be scored for the batch to have a number at all."""

    @property
    def accepted(self) -> int:
        """Runs that were scored."""

    @property
    def hole_count(self) -> int:
        """Runs that ended without a score."""

    @property
    def pass_rate(self) -> float | None:
        """Share of the scored runs that passed; None unless the batch is closed."""


def judge_gate(outcome: Judged, rules: GateRules) -> GateVerdict:
    """Judge a batch by its suite's rules.

    The rate is compared as it is, without a tolerance: a quotient of two whole numbers and the literal of a
    suite are both the nearest double to the same rational, so 7 of 10 meets 0.7.
    """
    rule = str(rules)
    rate = outcome.pass_rate
    if rate is None:
        if outcome.status is BatchStatus.INCONCLUSIVE:
            why = f"{outcome.accepted} of {outcome.intended} runs were scored, the quorum is {outcome.quorum}"
        else:
            ended = outcome.accepted + outcome.hole_count
            why = f"the batch is open: {ended} of {outcome.intended} runs have ended"
        return GateVerdict(GateWord.UNDECIDED, rule, (why,))
    if not rule:
        return GateVerdict(GateWord.NOT_SET, rule)
    missed = []
    if rules.min_pass_rate is not None and rate < rules.min_pass_rate:
        missed.append(f"pass_rate is {_short_of(rate, rules.min_pass_rate)}, below {rules.min_pass_rate}")
    if rules.max_holes is not None and outcome.hole_count > rules.max_holes:
        missed.append(f"holes are {outcome.hole_count}, above {rules.max_holes}")
    return GateVerdict(GateWord.FAILED if missed else GateWord.PASSED, rule, tuple(missed))


def _short_of(rate: float, asked: float) -> str:
    """A rate as it is shown everywhere else, with as many more digits as tell it from what it misses.

    0.59999 must not be shown as "0.6000, below 0.6"; nor 57 of 100, cut off behind the error of its product, as 0.5699.
    """
    shown = (f"{rate:.{digits}f}" for digits in range(4, 17))
    return next((text for text in shown if float(text) < asked), repr(rate))
