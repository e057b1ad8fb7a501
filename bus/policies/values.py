"""What a naive policy would have made of the same arrivals: values that a screen or a page can show.

A claim never stands alone: it has the number that it is out of, and an entry of the history for each time that it
happened. What the history cannot decide is a claim of its own, never part of another's count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Claim", "Prevented", "Proof", "RatePoint", "together"]


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


def together(parts: Sequence[Sequence[Prevented]]) -> tuple[Prevented, ...]:
    """Of the partitions of one batch, each with the same policies in the same order: what they say of all its runs.

    A policy counts runs, and a run is in one partition. So claims and their denominators add up; and at any moment the
    dashboard would have shown the sum of what had arrived in each until then.
    """
    return tuple(_joint(same) for same in zip(*parts, strict=True))


def _joint(same: Sequence[Prevented]) -> Prevented:
    claims = tuple(
        Claim(
            alike[0].what,
            sum(one.count for one in alike),
            sum(one.of for one in alike),
            alike[0].unit,
            tuple(proof for one in alike for proof in one.proofs),
        )
        for alike in zip(*(one.claims for one in same), strict=True)
    )
    return Prevented(same[0].policy, same[0].rule, claims, tuple(_summed([one.rate for one in same])))


def _summed(rates: Sequence[Sequence[RatePoint]]) -> Iterator[RatePoint]:
    """A point wherever one of them has one."""
    now: dict[int, RatePoint] = {}
    points = sorted(((point.ms, which, point) for which, rate in enumerate(rates) for point in rate), key=_when)
    for ms, which, point in points:
        now[which] = point
        yield RatePoint(ms, sum(one.passed for one in now.values()), sum(one.counted for one in now.values()))


def _when(point: tuple[int, int, RatePoint]) -> int:
    return point[0]
