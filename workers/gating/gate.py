"""The release gate: one word on a closed batch, and the exit code that goes with it.

A gate that reads an open batch gives a word that may change after somebody acted on it. So this one has four
words, and for a batch that is open, or that closed below its quorum, the word is `undecided`: it is neither
green nor red.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from bus.port import BatchStatus
from bus.types import RunId
from workers.gating.rules import GateRules

__all__ = ["Compared", "GateRules", "GateVerdict", "GateWord", "Judged", "Line", "Seen", "judge_gate"]

_NAMED = 5  # cases named in one reason; the JUnit file names all
MILLION = 1_000_000


class GateWord(StrEnum):
    """What the gate says."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_SET = "not set"
    """The batch is closed, and the suite asks for nothing."""
    UNDECIDED = "undecided"
    """The batch is open, or closed below its quorum, or what it must be compared with, or pass, is not there."""


@dataclass(frozen=True, slots=True)
class Line:
    """One rule: what was measured, what was asked, and whether it is met; None when that cannot be said."""

    rule: str
    measured: str
    bound: str
    met: bool | None
    why: str = ""
    """A clause, where it is not met."""

    @property
    def verdict(self) -> str:
        """One word."""
        return {True: "met", False: "missed", None: "undecided"}[self.met]


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The gate's word. `rule` is empty when none is set; `why` has a clause for each rule not met."""

    word: GateWord
    rule: str
    why: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    """One a rule, in the order of `rule`."""

    @property
    def passed(self) -> bool | None:
        """True, False, or None when there was nothing to judge or nothing to judge by."""
        return {GateWord.PASSED: True, GateWord.FAILED: False}.get(self.word)

    @property
    def exit_code(self) -> int:
        """0 passed, or no gate is set · 1 failed · 3 undecided."""
        return {GateWord.PASSED: 0, GateWord.NOT_SET: 0, GateWord.FAILED: 1, GateWord.UNDECIDED: 3}[self.word]


class Judged(Protocol):
    """What the gate needs to know of a batch; `workers.results.outcome.Outcome` is one."""

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


class Compared(Protocol):
    """A batch beside its baseline; `workers.statistics.paired.Paired` is one."""

    @property
    def difference(self) -> float | None:
        """Pass rate less the baseline's, over the cases scored in both; None where there are none."""

    @property
    def covers(self) -> str:
        """` over 5 of 10 cases`, where the baseline lacks some; else empty."""

    def lower(self, confidence: float) -> float | None:
        """Its lower bound, at this confidence."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What some rules need beside the counts."""

    spent: int = 0
    """Tokens, prompts and answers, for what counts and what does not."""
    not_passed: Mapping[RunId, str] = field(default_factory=dict)
    """Run to its bin, or to the reason of its hole, of all that did not pass."""
    left_out: Collection[str] = ()
    """Cases that must pass, and of which the batch has no run: it was made of some of the suite's."""
    compared: Compared | None = None
    """With the baseline; None where that is not at hand."""


def judge_gate(outcome: Judged, rules: GateRules, seen: Seen | None = None) -> GateVerdict:
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
    lines = tuple(_lines(outcome, rate, rules, seen or Seen()))
    verdicts = [line.met for line in lines]
    word = GateWord.FAILED if False in verdicts else GateWord.UNDECIDED if None in verdicts else GateWord.PASSED
    return GateVerdict(word, rule, tuple(line.why for line in lines if not line.met), lines)


def _lines(outcome: Judged, rate: float, rules: GateRules, seen: Seen) -> list[Line]:
    lines = []
    if (least := rules.min_pass_rate) is not None:
        shown = _short_of(rate, least) if rate < least else f"{rate:.4f}"
        lines.append(_line("pass_rate", shown, f">= {least}", rate >= least, f"pass_rate is {shown}, below {least}"))
    if (most := rules.max_holes) is not None:
        holes = outcome.hole_count
        lines.append(_line("holes", str(holes), f"<= {most}", holes <= most, f"holes are {holes}, above {most}"))
    if rules.max_cost is not None and rules.price is not None:
        cost = seen.spent * rules.price / MILLION
        shown, bound = f"{cost:.4f}", f"{rules.max_cost:g}"
        lines.append(_line("cost", shown, f"<= {bound}", cost <= rules.max_cost, f"cost is {shown}, above {bound}"))
    if rules.no_worse_than is not None:
        lines.append(_difference(rules, seen.compared))
    if rules.must_pass:
        lines.append(_floor(rules.must_pass, seen))
    return lines


def _line(rule: str, measured: str, bound: str, met: bool, why: str) -> Line:
    return Line(rule, measured, bound, met, "" if met else why)


def _difference(rules: GateRules, compared: Compared | None) -> Line:
    """No worse than the baseline: the difference itself, or the lower bound of what it may be."""
    bound, name, least = rules.least_difference, rules.no_worse_than, 0 - (rules.margin or 0.0)
    if compared is None:
        why = f"baseline {name} is not at hand: evalbus gate compares with it, given --suite DIR"
        return Line("difference", "none", bound, None, why)
    found = compared.difference if rules.confidence is None else compared.lower(rules.confidence)
    if found is None:
        return Line("difference", "none", bound, None, f"no case is scored here and in baseline {name}")
    # Sums of thirds and the like: what differs by less than this is a rounding, and no case of any batch.
    met = found >= least - 1e-9
    digits = 4 if met or round(found, 4) < least else 12
    shown = f"{found:+.{digits}f}{compared.covers}"
    what = "difference" if rules.confidence is None else "the difference's lower bound"
    return _line("difference", shown, bound, met, f"{what} to {name} is {shown}, below {least:g}")


def _floor(cases: tuple[str, ...], seen: Seen) -> Line:
    """Of a case that was left out nobody knows, unless another one has failed already."""
    asked, left_out = set(cases), sorted(set(seen.left_out))
    below = {run: what for run, what in seen.not_passed.items() if run.rpartition("#")[0] in asked}
    failed = {run.rpartition("#")[0] for run in below}
    why = []
    if below:
        why.append(f"must pass, and did not: {_named([f'{run} {what}' for run, what in sorted(below.items())])}")
    if left_out:
        why.append(f"must pass, and not among the batch's cases: {_named(left_out)}")
    met = len(asked) - len(failed) - len(left_out)
    return Line(
        "must_pass",
        f"{met} of {len(asked)}",
        f"all {len(asked)}",
        False if failed else None if left_out else True,
        "; ".join(why),
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _short_of(rate: float, asked: float) -> str:
    """A rate as it is shown everywhere else, with as many more digits as tell it from what it misses.

    0.59999 must not be shown as "0.6000, below 0.6"; nor 57 of 100, cut off behind the error of its product, as 0.5699.
    """
    shown = (f"{rate:.{digits}f}" for digits in range(4, 17))
    return next((text for text in shown if float(text) < asked), repr(rate))
