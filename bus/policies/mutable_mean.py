"""The mean of what is there: what a dashboard does that divides passes by results, and never says that it is done."""

from __future__ import annotations

from typing import ClassVar

from bus.policies.arrivals import Arrival, Verdict, in_order
from bus.policies.policy import Course, Policy, claim
from bus.policies.values import Prevented, Proof, RatePoint

__all__ = ["MutableMean"]


class MutableMean(Policy):
    """A verdict is a row, not a run's; and nothing closes."""

    NAME: ClassVar = "mutable-mean"
    RULE: ClassVar = "each verdict that arrives counts, in a mean over what has arrived so far, and nothing closes it"

    def __init__(self, course: Course) -> None:
        """See `Policy`."""
        super().__init__(course)
        self._arrived = self._passed = 0
        self._first: dict[str, Verdict] = {}
        self._again: list[Proof] = []
        self._moved: list[Proof] = []
        self._rate: list[RatePoint] = []

    def see(self, arrival: Arrival) -> None:
        """See `Policy`."""
        if not isinstance(arrival, Verdict) or arrival.bin not in self.course.bins:
            return
        self._arrived += 1
        self._passed += self.course.passes(arrival.bin)
        self._rate.append(RatePoint(arrival.ms, self._passed, self._arrived))
        first = self._first.setdefault(arrival.run, arrival)
        if first is not arrival:
            says = f"{arrival.bin} ({arrival.told}) would count beside {first.bin} ({first.told})"
            self._again.append(Proof(arrival.run, (first.id, arrival.id), says))
        closed = self.course.closed
        if closed is not None:
            says = f"{arrival.bin} ({arrival.told}) came {arrival.ms - closed.ms:,} ms after the batch had closed"
            self._moved.append(Proof(arrival.run, in_order(closed, arrival), says))

    def prevented(self) -> Prevented:
        """See `Policy`."""
        claims = (
            claim("verdicts_counted_twice", self._arrived, "verdicts that arrived", self._again),
            claim("holes_filled", len(self.course.holes), "holes", self._filled()),
            claim("moved_after_close", self._arrived, "verdicts that arrived", self._moved),
        )
        return Prevented(self.NAME, self.RULE, claims, tuple(self._rate))

    def _filled(self) -> list[Proof]:
        return [
            Proof(
                run,
                in_order(self._first[run], hole),
                f"{self._first[run].bin} ({self._first[run].told}) would count for a run that ended as {hole.why}",
            )
            for run, hole in self.course.holes.items()
            if run in self._first
        ]
