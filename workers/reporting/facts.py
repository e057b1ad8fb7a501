"""What a report says: every figure of the page as a plain value, derived from the history and from nothing else.

The page knows how things look and this module what they are, so that the numbers can be tested without a browser. All
times are whole milliseconds since the report's `began_unix_ms`, by the server's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bus.policies import Prevented
from workers.results.outcome import Outcome

__all__ = [
    "MOST_BUCKETS",
    "MOST_SAMPLES",
    "Bucket",
    "Chain",
    "Event",
    "Facts",
    "Refusal",
    "RefusalGroup",
    "RunDetail",
    "RunFacts",
    "Tokens",
]

MOST_SAMPLES = 50
"""Refusals of one group that are shown whole; the group's `count` says how many there were."""
MOST_BUCKETS = 240
"""Intervals that a timeline has at most."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run. Its life is `queued` (admitted, not leased), `running`, `sealed`, `scoring`; then its bin, or `hole`."""

    run: str
    case: str
    trial: int
    state: str
    """The bin's name, `hole`, or while the run is under way `running`, `queued`, `sealed`, `scoring`."""
    bin: str | None
    hole: str | None
    """Why it has no score."""
    value: str
    """The scorer's, as it was signed; empty when there is none."""
    deliveries: int
    """Leases that were granted for it: 1 when nothing went wrong."""
    refusals: int
    """Decisions about this run that granted nothing and were no repetition: `reject` and `replay`."""
    spent: int
    """Tokens that its own requests, its judge's included, were billed."""
    durable: int
    """Those of `spent` whose text arrived and was recorded."""
    admitted_ms: int | None
    leased_ms: int | None
    """Its first lease."""
    sealed_ms: int | None
    ended_ms: int | None
    """Scored, or given up as a hole."""
    worker: str
    """The last one that was given the run; empty before the first."""
    scorer: str
    """The last one that was routed its sealed state."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One decision that granted nothing, as it was presented."""

    entry: str
    """Its id in the history."""
    ms: int
    run: str
    """Empty when it is about the batch."""
    who: str
    """The worker or scorer that presented it, as far as the entry tells; else empty."""
    envelope: Mapping[str, Any]
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RefusalGroup:
    """The refusals of one operation for one reason; the most frequent group comes first."""

    fence: str
    """`run` where no fence but the step itself decided."""
    op: str
    reason: str
    count: int
    samples: tuple[Refusal, ...]
    """The first ones, at most `MOST_SAMPLES`, in the order of the history."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """What happened in `from_ms` <= t < `to_ms`. The intervals of a timeline adjoin and are equally long."""

    from_ms: int
    to_ms: int
    admitted: int
    leased: int
    preempted: int
    """Leases that a later one superseded before they had ended: see `workers.reporting.lives`."""
    refused: int
    sealed: int
    ended: int
    running: int
    """Runs that somebody held a lease of at `to_ms`."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What was spent. `spent = durable + orphan`."""

    spent: int
    durable: int
    orphan: int
    """Paid for, and not part of any accepted result."""
    estimated: int | None
    """Of those spent: by a guess. None where only the history was read, which does not hold it."""
    reserved: int
    """For requests that are open, or not settled yet."""
    budget: int | None


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a run's transcript."""

    seq: int
    """From 1."""
    gen: int
    """The generation whose holder appended it."""
    kind: str
    """`model`, `note`, … ; empty when the payload does not say."""
    text: str
    """What else it says, in lines: a text as such, several fields each under its name. Cut when it is very long."""


@dataclass(frozen=True, slots=True)
class RunDetail:
    """What opens when a run is looked at."""

    run: str
    words: tuple[str, ...]
    """As `evalbus why` says it, a line each."""
    picture: str
    """As `evalbus explain` draws it: an SVG element without styles of its own."""
    events: tuple[Event, ...]
    """Of the conversation that was sealed, or of the last one. Of very many the middle is left out."""


@dataclass(frozen=True, slots=True)
class Chain:
    """The history of one partition."""

    batch: str
    entries: int
    head: str


@dataclass(frozen=True, slots=True)
class Facts:
    """One report. An open batch has an `outcome` without a pass rate: what it has is progress."""

    outcome: Outcome
    source: str
    """The file, or `batch NAME`: where the history came from."""
    began_unix_ms: int
    """The first entry's time; 0 for a history without entries."""
    ended_unix_ms: int | None
    """When the batch closed or was given up; None while it is open."""
    head: str
    """Of the chain over the whole history: who wrote it down elsewhere can compare. Empty where there are several."""
    entries: int
    """Lines of the export between its first and its last: one for each decision."""
    runs: tuple[RunFacts, ...]
    """In the order of the suite; of runs that were not admitted yet nothing is known."""
    refusals: tuple[RefusalGroup, ...]
    timeline: tuple[Bucket, ...]
    """At most `MOST_BUCKETS`; empty for a history without entries."""
    tokens: Tokens
    prevented: tuple[Prevented, ...] = ()
    """What naive policies would have made of the same arrivals, as many as were asked for.

    The times of their rates are Unix times. Of an open batch they have no rates.
    """
    chains: tuple[Chain, ...] = ()
    """Of a batch in partitions, theirs; none where there is one, which is `head`."""
