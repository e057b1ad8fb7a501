"""Whoever answers first is right: what a harness does that asks an endpoint and believes what comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from bus.policies.arrivals import Arrival, Fate, Reply, Sealing, Verdict, in_order
from bus.policies.board import Board
from bus.policies.policy import Course, Policy, claim
from bus.policies.seals import Seals
from bus.policies.values import Prevented, Proof

__all__ = ["First200"]


class First200(Policy):
    """No lease, no request and no epoch is compared."""

    NAME: ClassVar = "first-200"
    RULE: ClassVar = "the first answer, seal or score that arrives for a run or a step is taken, whoever sends it"

    def __init__(self, course: Course) -> None:
        """See `Policy`."""
        super().__init__(course)
        self._board, self._seals = Board(course), Seals(course)
        self._first: dict[str, Reply] = {}
        """Step → the first answer to it."""
        self._bound: dict[str, Reply] = {}

    def see(self, arrival: Arrival) -> None:
        """See `Policy`."""
        match arrival:
            case Verdict():
                self._board.keep_first(arrival)
            case Sealing():
                self._seals.keep_first(arrival)
            case Reply():
                self._first.setdefault(arrival.step, arrival)
                if arrival.fate is Fate.TAKEN:
                    self._bound[arrival.step] = arrival

    def prevented(self) -> Prevented:
        """See `Policy`."""
        flipped, filled, _ = self._board.claims()  # what comes first is lost to nobody
        replies = claim("replies_replaced", len(self._bound), "model answers", self._replaced())
        claims = (flipped, filled, *self._seals.claims(), replies)
        return Prevented(self.NAME, self.RULE, claims, self._board.rate)

    def _replaced(self) -> Iterator[Proof]:
        for step, bound in self._bound.items():
            first = self._first[step]
            if first.digest != bound.digest:
                says = f"another answer to step {step} came first ({first.told}) than the one that is bound"
                yield Proof(bound.run, in_order(first, bound), says)
