"""Verdicts as a naive policy would have kept them, beside those that count."""

from __future__ import annotations

from collections.abc import Iterator

from bus.policies.arrivals import Ended, Verdict, in_order
from bus.policies.policy import Course, claim
from bus.policies.values import Claim, Proof, RatePoint

__all__ = ["Board"]


class Board:
    """A verdict a run, whichever a policy keeps, and the pass rate over those that are there."""

    def __init__(self, course: Course) -> None:
        """`course`: how the batch really went."""
        self._course = course
        self._kept: dict[str, Verdict | Ended] = {}
        self._passed = self._counted = 0
        self._rate: list[RatePoint] = []

    @property
    def rate(self) -> tuple[RatePoint, ...]:
        """A point for each verdict that changed the number."""
        return tuple(self._rate)

    def keep_first(self, verdict: Verdict) -> None:
        """Nothing moves a verdict that is there."""
        if verdict.run not in self._kept:
            self.keep(verdict)

    def keep(self, word: Verdict | Ended) -> None:
        """The last word on a run stands. A bin that the batch does not have is none, whoever says it."""
        if isinstance(word, Verdict) and word.bin not in self._course.bins:
            return
        before = self._share()
        self._count(self._kept.get(word.run), -1)
        self._kept[word.run] = word
        self._count(word, 1)
        if self._share() != before:
            self._rate.append(RatePoint(word.ms, self._passed, self._counted))

    def claims(self) -> tuple[Claim, ...]:
        """Verdicts that would have been others, that would have stood for a hole, that a hole would have taken."""
        verdicts, holes = self._course.verdicts, self._course.holes
        return (
            claim("verdicts_flipped", len(verdicts), "verdicts", self._flipped()),
            claim("holes_filled", len(holes), "holes", self._filled()),
            claim("verdicts_lost", len(verdicts), "verdicts", self._lost()),
        )

    def _share(self) -> tuple[int, int]:
        return self._passed, self._counted

    def _count(self, word: Verdict | Ended | None, sign: int) -> None:
        if isinstance(word, Verdict):
            self._counted += sign
            self._passed += sign * self._course.passes(word.bin)

    def _flipped(self) -> Iterator[Proof]:
        for run, true in self._course.verdicts.items():
            kept = self._kept.get(run)
            if isinstance(kept, Verdict) and kept.bin != true.bin:
                says = f"{kept.bin} ({kept.told}) would stand where {true.bin} counts"
                yield Proof(run, in_order(kept, true), says)

    def _filled(self) -> Iterator[Proof]:
        for run, hole in self._course.holes.items():
            kept = self._kept.get(run)
            if isinstance(kept, Verdict):
                says = f"{kept.bin} ({kept.told}) would stand for a run that ended as {hole.why}"
                yield Proof(run, in_order(kept, hole), says)

    def _lost(self) -> Iterator[Proof]:
        for run, true in self._course.verdicts.items():
            kept = self._kept.get(run)
            if isinstance(kept, Ended):
                says = f"{kept.why} ({kept.told}) would have replaced {true.bin}"
                yield Proof(run, in_order(true, kept), says)
