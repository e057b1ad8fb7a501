"""What naive policies would have made of the batch, and what their dashboards would have shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers.reporting.facts import Facts
from workers.reporting.web import shapes
from workers.reporting.web.result import Span

if TYPE_CHECKING:
    from bus.policies import Prevented, RatePoint

__all__ = ["MOST_PROOFS", "Policy", "policies"]

MOST_PROOFS = 100
"""Of a claim on the page; `evalbus replay --policy … --why` prints all."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What one naive policy would have made of the batch."""

    told: Prevented
    happened: int
    """Claims that are not 0."""
    path: str
    """The rate that a dashboard would have shown."""
    moments: tuple[tuple[str, RatePoint], ...]
    closed: float | None
    swing: Span | None
    """Between which rates it stood before it came to the closed one; None where it never moved."""

    @property
    def rule(self) -> str:
        """What it does, as a sentence."""
        said = self.told.rule.removesuffix(".")
        return f"{said[:1].upper()}{said[1:]}."

    @property
    def closed_y(self) -> str:
        """Where the closed rate stands, from above."""
        return f"{100 * (1 - (self.closed or 0)):.3f}%"


def policies(facts: Facts) -> tuple[Policy, ...]:
    """What was prevented, policy by policy, in the order in which they were asked for."""
    return tuple(_policy(told, facts) for told in facts.prevented)


def _policy(told: Prevented, facts: Facts) -> Policy:
    # From the first verdict to the close: before it there was no number, and after it none that moved.
    points, path, moments, swing = told.rate, "", [], None
    if points:
        first = points[0].ms
        length = max(facts.ended_unix_ms or 0, points[-1].ms) - first or 1
        path = shapes.line([((point.ms - first) / length, _rate(point)) for point in points])
        low, high = min(map(_rate, points)), max(map(_rate, points))
        swing = Span(low, high) if low < high else None
        moments = [("first", points[0]), *_extremes(points), ("last", points[-1])]
    happened = Counter(bool(claim.count) for claim in told.claims)[True]
    return Policy(told, happened, path, tuple(moments), facts.outcome.pass_rate, swing)


def _extremes(points: Sequence[RatePoint]) -> Iterator[tuple[str, RatePoint]]:
    """The lowest and the highest rate, where they were neither the first nor the last."""
    ends = {_rate(points[0]), _rate(points[-1])}
    for name, point in (("lowest", min(points, key=_rate)), ("highest", max(points, key=_rate))):
        if _rate(point) not in ends:
            yield name, point


def _rate(point: RatePoint) -> float:
    return point.passed / point.counted if point.counted else 0.0
