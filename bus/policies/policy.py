"""What every policy has: the arrivals that it is shown, and what the fences made of them to compare with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bus.policies.arrivals import Arrival, Closed, Ended, Fate, Held, Sealing, Verdict
from bus.policies.values import Claim, Prevented, Proof

__all__ = ["Course", "Policy", "claim"]


@dataclass(slots=True)
class Course:
    """How the batch really went. It grows with the runs, and has seen an arrival before a policy is shown it."""

    bins: tuple[str, ...]
    """As the batch declares them: the first is the one that passes."""
    budget: int | None
    """Of tokens; None when there is none."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """Run → the one that counts."""
    holes: dict[str, Ended] = field(default_factory=dict)
    seals: dict[str, Sealing] = field(default_factory=dict)
    holders: dict[str, Held] = field(default_factory=dict)
    """Run → whom it was given to last."""
    closed: Closed | None = None

    @classmethod
    def of(cls, policy: Mapping[str, Any]) -> Course:
        """Of a batch with this declaration, as the first line of its export has it."""
        return cls(tuple(policy["bins"]), policy["limits"].get("budget"))

    def see(self, arrival: Arrival) -> None:
        """Take note of what was granted."""
        if arrival.fate is not Fate.TAKEN and not isinstance(arrival, Closed):
            return
        match arrival:
            case Verdict():
                self.verdicts[arrival.run] = arrival
            case Ended():
                self.holes[arrival.run] = arrival
            case Sealing():
                self.seals[arrival.run] = arrival
            case Held():
                self.holders[arrival.run] = arrival
            case Closed():
                self.closed = arrival

    def passes(self, named: str) -> bool:
        """Whether a bin is the one that passes."""
        return named == self.bins[0]


class Policy:
    """One naive way to run a batch. It sees the recorded arrivals in their order, and says what it would have made."""

    NAME: ClassVar[str]
    RULE: ClassVar[str]
    """One sentence."""

    def __init__(self, course: Course) -> None:
        """`course`: how the batch went; it is brought up to date by whoever shows the arrivals."""
        self.course = course

    def see(self, arrival: Arrival) -> None:
        """Take the next arrival as this policy would have taken it."""
        raise NotImplementedError

    def prevented(self) -> Prevented:
        """What would have gone wrong. There are no more arrivals."""
        raise NotImplementedError


def claim(what: str, of: int, unit: str, proofs: Iterable[Proof]) -> Claim:
    """A claim whose count is that of its proofs."""
    shown = tuple(proofs)
    return Claim(what, len(shown), of, unit, shown)
