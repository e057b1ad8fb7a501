"""What the page says first: the number with its doubts and the gate, or an open batch's progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from workers.gating.gate import GateWord
from workers.reporting.facts import Facts
from workers.results.numbers import Interval
from workers.results.outcome import trials_told

__all__ = ["Rate", "Result", "Span", "result"]


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a scale from 0 to 1."""

    low: float
    high: float

    @classmethod
    def of(cls, interval: Interval) -> Span:
        """The same span."""
        return cls(interval.low, interval.high)

    @property
    def x(self) -> str:
        """Where it begins, as a length of SVG."""
        return f"{100 * self.low:.3f}%"

    @property
    def width(self) -> str:
        """Likewise."""
        return f"{100 * (self.high - self.low):.3f}%"


@dataclass(frozen=True, slots=True)
class Rate:
    """A pass rate with its doubts, on one scale."""

    passed: int
    accepted: int
    value: float
    interval: Span
    bounds: Span
    asked: float | None
    """The least that the gate asks for."""

    @property
    def x(self) -> str:
        """Where the rate stands, as a length of SVG."""
        return f"{100 * self.value:.3f}%"

    @property
    def asked_x(self) -> str:
        """Likewise, the gate's."""
        return f"{100 * (self.asked or 0):.3f}%"


@dataclass(frozen=True, slots=True)
class Result:
    """The number, or why there is none."""

    rate: Rate | None
    ended: int
    """Runs that have a bin or are holes."""
    intended: int
    gate: str
    """`passed`, `failed`, `not set`, `undecided`."""
    look: str
    """`good`, `bad` or `plain`: how the word is coloured; the word itself says it."""
    why: tuple[str, ...]
    trials: tuple[tuple[str, str, str], ...]
    """Of a closed batch with several trials of a case: label, figures and note, as the closing screen has them."""
    states: tuple[tuple[str, int], ...]
    """Of an open batch: where the runs are that have not ended, in the order of a run's life."""


def result(facts: Facts) -> Result:
    """The number with its denominator, interval, bounds and gate; for an open batch its progress."""
    outcome, gate = facts.outcome, facts.outcome.gate
    rate, interval, bounds = outcome.pass_rate, outcome.interval, outcome.bounds
    drawn = None
    if rate is not None and interval is not None and bounds is not None:
        asked = outcome.rules.min_pass_rate
        drawn = Rate(outcome.passed, outcome.accepted, rate, Span.of(interval), Span.of(bounds), asked)
    look = {GateWord.PASSED: "good", GateWord.FAILED: "bad"}.get(gate.word, "plain")
    ended = outcome.accepted + outcome.hole_count
    states = () if outcome.status.ended else tuple(_under_way(facts))
    trials = tuple(trials_told(outcome)) if drawn is not None else ()
    return Result(drawn, ended, outcome.intended, gate.word.value, look, gate.why, trials, states)


def _under_way(facts: Facts) -> Iterator[tuple[str, int]]:
    states = Counter(run.state for run in facts.runs if run.bin is None and run.hole is None)
    for state in ("queued", "running", "sealed", "scoring"):
        yield state, states[state]
    yield "not admitted yet", facts.outcome.intended - len(facts.runs)
