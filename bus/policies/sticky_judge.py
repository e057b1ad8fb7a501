"""The judge is whoever was asked: what a router does that remembers where it sent the work, not who did it."""

from __future__ import annotations

from typing import ClassVar

from bus.policies.arrivals import Arrival, Fate, Verdict
from bus.policies.board import Board
from bus.policies.policy import Course, Policy, claim
from bus.policies.values import Prevented, Proof

__all__ = ["StickyJudge"]

_IDENTITY = ("candidate_mismatch", "judge_mismatch", "stale_epoch", "unbound")


class StickyJudge(Policy):
    """Leases are compared as ever; identities and the epoch of the binding are not."""

    NAME: ClassVar = "sticky-judge"
    RULE: ClassVar = (
        "whoever was handed the score signs it: judge, candidate and the epoch of their binding are not compared"
    )

    def __init__(self, course: Course) -> None:
        """See `Policy`."""
        super().__init__(course)
        self._board = Board(course)
        self._signed = 0
        self._mistaken: list[Proof] = []

    def see(self, arrival: Arrival) -> None:
        """See `Policy`."""
        if not isinstance(arrival, Verdict):
            return
        mistaken = (arrival.fence, arrival.fate) == ("judge", Fate.REFUSED) and arrival.reason in _IDENTITY
        if not mistaken and arrival.fate is not Fate.TAKEN:
            return
        self._signed += 1
        self._board.keep_first(arrival)
        if mistaken:
            says = f"{arrival.bin} would be signed with the name of a judge or candidate that was not there"
            self._mistaken.append(Proof(arrival.run, (arrival.id,), f"{says} ({arrival.told})"))

    def prevented(self) -> Prevented:
        """See `Policy`."""
        mistaken = claim("verdicts_misattributed", self._signed, "verdicts", self._mistaken)
        flipped, filled, _ = self._board.claims()
        return Prevented(self.NAME, self.RULE, (mistaken, flipped, filled), self._board.rate)
