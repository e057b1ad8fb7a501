"""What a naive policy would have made of the same arrivals: values that a screen or a page can show.

A claim never stands alone: it has the number that it is out of, and an entry of the history for each time that it
happened. What the history cannot decide is a claim of its own, never part of another's count.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Claim", "Prevented", "Proof", "RatePoint"]


@dataclass(frozen=True, slots=True)
class Proof:
    """One time that it happened, by what stands in the history."""

    run: str
    """The run that it would have happened to."""
    entries: tuple[str, ...]
    """Ids as an export has them, in the order of the sentence. Never empty."""
    says: str
    """One clause, without a full stop."""


@dataclass(frozen=True, slots=True)
class Claim:
    """How often one thing would have gone wrong. Nothing did: `count` is 0 where nothing would have."""

    what: str
    """A name that programs compare: `verdicts_flipped`, `effects_doubled`."""
    count: int
    of: int
    """How often it could have: the denominator, in the same unit."""
    unit: str
    """What is counted, in the plural: `verdicts`, `tokens`."""
    proofs: tuple[Proof, ...]
    """One for each that was counted; for tokens, one for each attempt. Empty if and only if `count` is 0."""


@dataclass(frozen=True, slots=True)
class RatePoint:
    """The pass rate as a dashboard would have shown it at one moment: `passed` out of `counted`."""

    ms: int
    """By the server's clock, Unix time in milliseconds."""
    passed: int
    counted: int


@dataclass(frozen=True, slots=True)
class Prevented:
    """One policy, beside what the fences did."""

    policy: str
    rule: str
    """What the policy does, in one sentence."""
    claims: tuple[Claim, ...]
    """All that the policy looks for, those that count 0 included."""
    rate: tuple[RatePoint, ...]
    """A point wherever the number changes, in the order of time; empty for a policy that changes no number."""
