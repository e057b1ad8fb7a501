"""A result belongs to the job's id: what a queue does that keeps results in a table and lets workers write to it."""

from __future__ import annotations

from typing import ClassVar

from bus.policies.arrivals import Arrival, Ended, Held, Sealing, Verdict, Written, in_order
from bus.policies.board import Board
from bus.policies.policy import Course, Policy, claim
from bus.policies.seals import Seals
from bus.policies.values import Prevented, Proof

__all__ = ["JobId"]


class JobId(Policy):
    """The generation is not compared."""

    NAME: ClassVar = "job-id"
    RULE: ClassVar = (
        "results are kept under the run's id alone: the last to arrive overwrites, and any holder's events are appended"
    )

    def __init__(self, course: Course) -> None:
        """See `Policy`."""
        super().__init__(course)
        self._board, self._seals = Board(course), Seals(course)
        self._held: set[str] = set()
        self._mixed: dict[str, Proof] = {}
        """Run → the first event that would have been another generation's."""

    def see(self, arrival: Arrival) -> None:
        """See `Policy`."""
        match arrival:
            case Verdict():
                self._board.keep(arrival)
            case Ended() if arrival.own:
                self._board.keep(arrival)
            case Sealing():
                self._seals.keep(arrival)
            case Held():
                self._held.add(arrival.run)
            case Written():
                self._write(arrival)

    def _write(self, late: Written) -> None:
        holder = self.course.holders.get(late.run)
        if holder is None or holder.gen == late.gen or late.run in self._mixed:
            return
        says = (
            f"an event of generation {late.gen} ({late.told}) would stand in the transcript of generation "
            f"{holder.gen}, which {holder.consumer or 'another'} held"
        )
        self._mixed[late.run] = Proof(late.run, in_order(holder, late), says)

    def prevented(self) -> Prevented:
        """See `Policy`."""
        mixed = claim("transcripts_mixed", len(self._held), "transcripts", self._mixed.values())
        return Prevented(self.NAME, self.RULE, (*self._board.claims(), *self._seals.claims(), mixed), self._board.rate)
