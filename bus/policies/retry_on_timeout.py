"""No answer means that nothing happened: what a client does that retries after a timeout, effects or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from bus.policies.arrivals import Arrival, Asked, Fate, Outcome, Redelivered, Sent, in_order
from bus.policies.policy import Course, Policy, claim
from bus.policies.values import Prevented, Proof

__all__ = ["RetryOnTimeout"]


class RetryOnTimeout(Policy):
    """Whether the first call had landed is not asked. It is here, of whoever has said so since."""

    NAME: ClassVar = "retry-on-timeout"
    RULE: ClassVar = "a call whose executor fell silent after it had left is sent again, as a new call"

    def __init__(self, course: Course) -> None:
        """See `Policy`."""
        super().__init__(course)
        self._sent: dict[str, Sent] = {}
        self._again: dict[str, Redelivered] = {}
        """Call → when it would have been sent for the second time."""
        self._outcomes: dict[str, Outcome] = {}
        """Call → what the executor that sent it said, first."""
        self._asked: dict[str, Asked] = {}
        self._beside: dict[str, Asked] = {}
        """Step → the first request that was refused because another was under way."""

    def see(self, arrival: Arrival) -> None:
        """See `Policy`."""
        match arrival:
            case Sent():
                self._sent[arrival.intent] = arrival
            case Redelivered() if arrival.intent in self._sent:
                self._again.setdefault(arrival.intent, arrival)
            case Outcome():
                sent = self._sent.get(arrival.intent)
                if sent is not None and sent.executor == arrival.executor:
                    self._outcomes.setdefault(arrival.intent, arrival)
            case Asked(fate=Fate.TAKEN):
                self._asked[arrival.step] = arrival
            case Asked(reason="step_in_flight"):
                self._beside.setdefault(arrival.step, arrival)

    def prevented(self) -> Prevented:
        """See `Policy`."""
        of = len(self._sent)
        claims = (
            claim("effects_doubled", of, "effects", self._doubled()),
            claim("effects_repeated_in_doubt", of, "effects", self._in_doubt()),
            claim("requests_doubled", len(self._asked), "model requests", self._two_at_once()),
        )
        return Prevented(self.NAME, self.RULE, claims, ())

    def _doubled(self) -> Iterator[Proof]:
        for intent, again in self._again.items():
            outcome = self._outcomes.get(intent)
            if outcome is not None and outcome.ok:
                says = f"call {intent} had been carried out: the executor that sent it said so ({outcome.told})"
                yield Proof(again.run, in_order(self._sent[intent], again, outcome), says)

    def _in_doubt(self) -> Iterator[Proof]:
        for intent, again in self._again.items():
            if intent not in self._outcomes:
                says = f"call {intent} would have been sent again; whether it had been carried out is not known"
                yield Proof(again.run, in_order(self._sent[intent], again), says)

    def _two_at_once(self) -> Iterator[Proof]:
        for step, beside in self._beside.items():
            asked = self._asked.get(step)
            if asked is not None:
                says = f"a second request for step {step} would have left while the first was under way"
                yield Proof(beside.run, in_order(asked, beside), says)
