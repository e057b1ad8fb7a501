"""What the other sections show: the batch over time, its refusals, its holes, and the runs that stand out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workers.explaining.reasons import why_refused
from workers.reporting.facts import Bucket, Facts, Refusal, RefusalGroup, RunFacts
from workers.reporting.web import shapes
from workers.reporting.web.words import count, duration, visible

__all__ = ["MOST_HOLES", "Notable", "Refused", "Strip", "Timeline", "ranked", "refusals", "timeline"]

_NOTABLE = 8
"""Runs in a list of the slowest: a glance. The table of runs can be sorted for the rest."""
MOST_HOLES = 200
"""That are named one by one; the table of runs has all."""
_TICKS = 4


@dataclass(frozen=True, slots=True)
class Strip:
    """One kind of event over time."""

    name: str
    path: str
    units: int
    """Values, each one unit wide."""
    total: int | None
    """None for a level, which has no sum."""
    most: int
    look: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Strips over the same time."""

    strips: tuple[Strip, ...]
    ticks: tuple[str, ...]
    step: str
    """How long one interval is."""
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A group of refusals, with its samples ready to be read."""

    group: RefusalGroup
    words: str
    samples: tuple[tuple[Refusal, str], ...]
    """Each with what was presented, as JSON."""

    @property
    def more(self) -> int:
        """Refusals that are counted, and not shown."""
        return self.group.count - len(self.samples)


@dataclass(frozen=True, slots=True)
class Notable:
    """Runs that a reader should know of, the most notable first."""

    title: str
    unit: str
    runs: tuple[tuple[RunFacts, str], ...]


def timeline(facts: Facts) -> Timeline | None:
    """The batch over time; None when nothing was recorded."""
    buckets = facts.timeline
    if not buckets:
        return None
    running = [bucket.running for bucket in buckets]
    strips = [Strip("running", shapes.area(running), len(buckets), None, max(running), "level")]
    for name, look in (
        ("admitted", "plain"), ("leased", "plain"), ("preempted", "taken"), ("refused", "bad"), ("ended", "plain")
    ):  # fmt: skip
        values = [getattr(bucket, name) for bucket in buckets]
        strips.append(Strip(name, shapes.bars(values), len(buckets), sum(values), max(values), look))
    first, last = buckets[0].from_ms, buckets[-1].to_ms
    ticks = tuple(duration(first + (last - first) * number // _TICKS) for number in range(_TICKS + 1))
    return Timeline(tuple(strips), ticks, duration(buckets[0].to_ms - buckets[0].from_ms), buckets)


def refusals(facts: Facts) -> tuple[Refused, ...]:
    """By reason, each with what was presented."""
    return tuple(
        Refused(group, why_refused(group.reason), tuple((one, _raw(one)) for one in group.samples))
        for group in facts.refusals
    )


def _raw(refusal: Refusal) -> str:
    presented = {"envelope": refusal.envelope, "args": refusal.args}
    return visible(json.dumps(presented, ensure_ascii=False, indent=2, default=str))


def ranked(runs: Sequence[RunFacts]) -> tuple[Notable, ...]:
    """The slowest runs, and those that were delivered most often."""
    lists = (
        Notable("Slowest runs", "from admission to end", tuple(_slowest(runs))),
        Notable("Most redelivered runs", "deliveries", tuple(_redelivered(runs))),
    )
    return tuple(notable for notable in lists if notable.runs)


def _slowest(runs: Sequence[RunFacts]) -> Iterator[tuple[RunFacts, str]]:
    timed = [(run.ended_ms - run.admitted_ms, run) for run in runs if run.ended_ms is not None
             and run.admitted_ms is not None]  # fmt: skip
    for ms, run in sorted(timed, key=lambda pair: -pair[0])[:_NOTABLE]:
        yield run, duration(ms)


def _redelivered(runs: Sequence[RunFacts]) -> Iterator[tuple[RunFacts, str]]:
    again = [run for run in runs if run.deliveries > 1]
    for run in sorted(again, key=lambda run: -run.deliveries)[:_NOTABLE]:
        yield run, count(run.deliveries)
