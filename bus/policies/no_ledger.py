"""Spend is what answers say they cost: what a harness does that adds up the usage of the answers it kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from bus.policies.arrivals import Arrival, Asked, Charged, Fate, Reply, in_order
from bus.policies.policy import Course, Policy, claim
from bus.policies.values import Claim, Prevented, Proof

__all__ = ["NoLedger"]


@dataclass(slots=True)
class _Bill:
    """One attempt's, in tokens."""

    run: str
    estimate: int = 0
    first: Charged | None = None
    last: Charged | None = None
    refused: Reply | None = None
    """Its answer, when nobody took it."""
    arrived: int = 0
    """By chunks."""
    billed: int = 0
    """In the end: what the endpoint said, or a guess, where it was settled."""
    counted: int = 0
    """What an answer that was taken said it had cost."""
    ended: str = ""

    @property
    def spoken_for(self) -> int:
        """Spent, and what the request may still spend while it is under way."""
        return self.billed if self.ended else max(self.billed, self.estimate)

    @property
    def had(self) -> int:
        """Those that arrived, and that the endpoint billed."""
        return min(self.arrived, self.billed)

    @property
    def why(self) -> str:
        """What became of its answer."""
        if self.refused is not None:
            return f"its answer was {self.refused.told}"
        if self.ended == "done":
            return "they were billed after its answer had been taken"
        return "it was given up" if self.ended else "no answer of it was taken"

    @property
    def proof(self) -> tuple[str, ...]:
        """The first and the last charge, and the refused answer."""
        return tuple(dict.fromkeys(in_order(*filter(None, (self.first, self.refused, self.last)))))


class NoLedger(Policy):
    """Chunks, cuts and lost answers cost nothing, and nothing is reserved for what is under way."""

    NAME: ClassVar = "no-ledger"
    RULE: ClassVar = "only the usage of answers that were taken is counted, when they come; nothing is reserved"

    def __init__(self, course: Course) -> None:
        """See `Policy`."""
        super().__init__(course)
        self._bills: dict[tuple[str, int], _Bill] = {}
        """Attempts, by step and number."""
        self._counted = self._spoken_for = 0
        self._steps: set[str] = set()
        self._over: dict[str, Proof] = {}

    def see(self, arrival: Arrival) -> None:
        """See `Policy`."""
        match arrival:
            case Charged():
                self._charge(arrival)
            case Reply(fate=Fate.REFUSED):
                bill = self._bills.get((arrival.step, arrival.attempt))
                if bill is not None and bill.ended != "done":
                    bill.refused = arrival
            case Asked():
                self._ask(arrival)

    def _charge(self, charged: Charged) -> None:
        bill = self._bill(charged)
        before = bill.spoken_for
        bill.first, bill.last = bill.first or charged, charged
        if charged.billed is not None:
            bill.billed = charged.billed
        if charged.by == "chunk":
            bill.arrived = bill.billed
        elif charged.by == "done":
            bill.counted, bill.refused = bill.billed, None
            self._counted += bill.billed
        if charged.by not in ("chunk", "reconcile"):
            bill.ended = charged.by
        self._spoken_for += bill.spoken_for - before

    def _ask(self, asked: Asked) -> None:
        if asked.fate is Fate.TAKEN:
            self._steps.add(asked.step)
            bill = self._bill(asked)
            before = bill.spoken_for
            bill.estimate = asked.estimate
            self._spoken_for += bill.spoken_for - before
        elif asked.reason == "over_budget":
            self._steps.add(asked.step)
            self._over_budget(asked)

    def _over_budget(self, asked: Asked) -> None:
        budget = self.course.budget
        if budget is None or self._counted >= budget or asked.step in self._over:
            return
        says = (
            f"a request for {asked.estimate:,} tokens would have left with {self._spoken_for:,} of {budget:,} spent or "
            f"reserved: the answers that were taken had cost {self._counted:,}"
        )
        self._over[asked.step] = Proof(asked.run, (asked.id,), says)

    def _bill(self, arrival: Asked | Charged) -> _Bill:
        name = (arrival.step, arrival.attempt)
        if name not in self._bills:
            self._bills[name] = _Bill(arrival.run)
        return self._bills[name]

    def prevented(self) -> Prevented:
        """See `Policy`."""
        spent = sum(bill.billed for bill in self._bills.values())
        claims = (
            _tokens("tokens_unaccounted", spent, self._bills, lambda bill: bill.had - bill.counted),
            _tokens("tokens_settled_unseen", spent, self._bills, lambda bill: bill.billed - bill.had),
            claim("budget_overrun", len(self._steps), "model requests", self._over.values()),
        )
        return Prevented(self.NAME, self.RULE, claims, ())


def _tokens(what: str, of: int, bills: Mapping[tuple[str, int], _Bill], lost_of: Callable[[_Bill], int]) -> Claim:
    """A claim about tokens, proved attempt by attempt."""
    proofs, count = [], 0
    for (step, _), bill in bills.items():
        if lost := lost_of(bill):
            count += lost
            proofs.append(Proof(bill.run, bill.proof, f"{lost:,} tokens of a request for step {step}: {bill.why}"))
    return Claim(what, count, of, "tokens", tuple(proofs))
