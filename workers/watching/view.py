"""What is shown of a batch while it runs: the same values in the terminal and in the browser.

An open batch has progress and no pass rate. A share of what happens to be finished favours the quick runs, and
whoever watches it climb will quote it; so the bins of an open batch are not shown. What it came to is an `Outcome`, and
that there is only when it has ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from bus.held_loops import HeldLoop
from bus.port import BatchSpec, Counters
from bus.types import BatchId, Plane, RunId
from workers.brief import brief
from workers.processes.held_loops import places_of
from workers.results.outcome import Outcome, some_of
from workers.results.progress import Glance, state_of

__all__ = [
    "Brief",
    "Doubt",
    "Hold",
    "Partition",
    "Refusal",
    "Share",
    "View",
    "clock",
    "date",
    "left",
    "per_minute",
    "seconds",
    "sorted_counts",
]


_PLACES: Final = 3
"""Lines of code that hold event loops, of those that were noted."""
_LONGEST: Final = 300
"""Characters of a notice that quotes a worker."""


@dataclass(frozen=True, slots=True)
class Brief:
    """A batch as one line of a list."""

    batch: BatchId
    state: str
    """As `Outcome.state`, and `closing` while an open batch waits for what its runs left behind."""
    intended: int
    ended: int
    running: int
    scoring: int
    """Sealed runs: those that wait for a scorer, and those that have one."""
    holes: int
    refused: int
    """Without those that only had to wait for room."""
    bins: Mapping[str, int]
    """Of a batch that has ended; empty while it is open, for a share of what is finished so far is no result."""
    began_ms: int
    """When it was declared, by the server's clock, in ms since 1970; 0 where its history is gone."""
    rate: float | None
    """Runs that end in a minute; None while nothing can be said, and for a batch that has ended."""
    seconds_left: float | None

    @property
    def told(self) -> str:
        """Its bins in words: `pass 39 · fail 7`; empty while it is open."""
        return " · ".join(f"{name} {count:,}" for name, count in self.bins.items())

    @property
    def open(self) -> bool:
        """Whether its counts may still grow."""
        return self.state in ("open", "closing")


@dataclass(frozen=True, slots=True)
class Hold:
    """A run in somebody's hands. `gen`: the generation of a worker, the epoch of a scorer."""

    run: RunId
    scoring: bool
    who: str
    gen: int
    delivery: int
    silent_ms: int | None
    """Since its last sign of life; None when its message was not found."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A call of a tool of which nobody is sure; `says` is a clause."""

    id: str
    run: RunId
    tool: str
    says: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused step of the history. `by` is the operation that refused, `words` say the reason plainly."""

    entry: str
    """Its id in the history."""
    partition: str
    """Whose history that is; empty where the batch has one."""
    ms: int
    """By the server's clock, since 1970."""
    run: str
    who: str
    by: str
    reason: str
    words: str


@dataclass(frozen=True, slots=True)
class Partition:
    """One of a batch that was dealt out in several. `spent`: its share of the budget is used up, or reserved."""

    batch: BatchId
    ended: bool
    spent: bool


@dataclass(frozen=True, slots=True)
class Share:
    """How many of the intended runs are in one state; `name` is for people, `kind` for style sheets."""

    kind: str
    name: str
    count: int


@dataclass(frozen=True, slots=True)
class View:
    """A batch in full, at one moment."""

    spec: BatchSpec
    plane: Plane
    imported: bool
    """Read back from a file to be looked at: nobody will go on with it."""
    at_ms: int
    """The server's clock, in ms since 1970."""
    began_ms: int
    counters: Counters
    partitions: tuple[Partition, ...]
    """Those that are declared; none where the batch was not dealt out."""
    glance: Glance
    rate: float | None
    """Runs that end in a minute."""
    holds: tuple[Hold, ...]
    holds_left_out: int
    """Beside those in `holds`."""
    doubts: tuple[Doubt, ...]
    loops: Mapping[RunId, HeldLoop]
    """Of runs whose solver held its worker's event loop: what was noted. None where the batch has ended."""
    refusals: tuple[Refusal, ...]
    """The newest first, of those since `refusals_since_ms`."""
    refusals_since_ms: int
    archive: str
    """`host:/directory`, to which the older part of the history went; empty where whoever looks has all of it."""
    outcome: Outcome | None
    """None while the batch is open."""

    @property
    def batch(self) -> BatchId:
        """Its name."""
        return self.spec.batch

    @property
    def state(self) -> str:
        """As `Brief.state`."""
        return state_of(self.counters)

    @property
    def in_partitions(self) -> str:
        """`3 partitions, 1 ended`; empty where the batch was not dealt out."""
        ended = sum(one.ended for one in self.partitions)
        which = "" if self.counters.status.ended else f", {ended} ended"
        return f"{len(self.partitions)} partitions{which}" if self.partitions else ""

    @property
    def some_of(self) -> str:
        """`the first of the suite's 46 runs`; empty where it has all of its suite's cases."""
        told = some_of(self.spec.first_of, chosen=self.spec.cases is not None)
        return told and f"{told} runs"

    @property
    def ended(self) -> int:
        """Runs that have a score, or a reason why they will not get one."""
        return self.glance.done

    @property
    def budget(self) -> int | None:
        """Tokens that the batch may spend."""
        budget = self.spec.limits.get("budget")
        return None if budget is None else int(budget)

    @property
    def shares(self) -> tuple[Share, ...]:
        """Where the intended runs are, from the end of their way to its beginning. Their counts sum to `intended`.

        When the batch has ended: its bins, and the holes beside them, which are missing and were not failed.
        """
        counts, outcome = self.counters, self.outcome
        if outcome is not None:
            bins = enumerate(outcome.bins.items())
            shares = [Share(f"bin{min(place, 3)}", name, count) for place, (name, count) in bins]
            return (*shares, Share("hole", "holes", outcome.hole_count))
        waiting = max(0, counts.admitted - counts.running - counts.sealed - counts.scoring - self.ended)
        return (
            Share("scored", "scored", counts.scored),
            Share("hole", "holes", counts.holes),
            Share("scoring", "being scored", counts.scoring),
            Share("sealed", "sealed, wait for a scorer", counts.sealed),
            Share("running", "running", counts.running),
            Share("queued", "wait for a worker", waiting),
            Share("ahead", "not admitted yet", max(0, counts.intended - counts.admitted)),
        )

    @property
    def workers(self) -> int:
        """Workers that hold a run."""
        return len({hold.who for hold in self.holds if not hold.scoring})

    @property
    def scorers(self) -> int:
        """Scorers that hold one."""
        return len({hold.who for hold in self.holds if hold.scoring})

    @property
    def sentence(self) -> str:
        """The whole in one sentence, for who cannot see the picture."""
        counts = self.counters
        if self.outcome is not None:
            rate = self.outcome.pass_rate
            number = "no pass rate" if rate is None else f"pass rate {rate:.4f}"
            return f"{self.state}, {number}, {counts.scored} scored, {counts.holes} holes"
        said = f"{self.state}: {self.ended} of {counts.intended} runs have ended, {counts.running} running"
        return f"{said}, {counts.holes} holes" + (f", {self.glance.left}" if self.glance.left else "")

    @property
    def notices(self) -> tuple[str, ...]:
        """What a person might have to do something about, each a sentence; none when all is well."""
        return tuple(_notices(self))


def _notices(view: View) -> Iterator[str]:
    counts, spec = view.counters, view.spec
    if view.imported:
        yield "This batch was imported to be looked at. Nobody goes on with it."
        return
    if counts.review:
        yield f"{_runs(counts.review, 'waits', 'wait')} for a person: evalbus review {view.batch}"
    if counts.stuck:
        calls = "call of a tool is" if counts.stuck == 1 else "calls of tools are"
        yield f"{counts.stuck} {calls} stuck: nobody knows whether its effect stands, and it cannot be undone."
    if view.archive:
        yield f"The older part of the history is in {view.archive}: runs and the report are shown with --archive DIR."
    if view.outcome is not None:
        return
    if counts.intended - counts.holes < counts.quorum:
        yield (
            f"The quorum of {counts.quorum} can no longer be reached: {counts.holes} of {counts.intended} runs are "
            "holes. The batch will end inconclusive."
        )
    budget = view.budget
    if budget is not None and counts.spent + counts.reserved >= budget:
        yield "The budget is used up, or reserved by calls that are under way. Runs that ask for more become holes."
    elif spent := [one.batch for one in view.partitions if one.spent and not one.ended]:
        its = f"its share of the budget: {spent[0]}" if len(spent) == 1 else f"their shares: {', '.join(spent)}"
        many = "A partition has" if len(spent) == 1 else f"{len(spent)} partitions have"
        yield f"{many} used up, or reserved, {its}. Runs there that ask for more become holes."
    silent = sorted({hold.who for hold in view.holds if (hold.silent_ms or 0) > spec.lease_ms})
    if silent:
        names = ", ".join(silent[:3]) + (f" and {len(silent) - 3} more" if len(silent) > 3 else "")  # noqa: PLR2004
        yield f"Silent for longer than a lease of {seconds(spec.lease_ms)}, about to lose their runs: {names}."
    yield from (brief(line, _LONGEST) for line in list(places_of(view.loops).values())[:_PLACES])
    if view.ended == counts.intended:
        if counts.effects_open:
            calls = "call of a tool" if counts.effects_open == 1 else "calls of tools"
            yield f"Every run has ended. The batch closes when {counts.effects_open} {calls} have ended too."
    elif not view.holds and counts.running == counts.scoring == 0:
        what = "a scorer" if counts.sealed else "a planner" if not _queued(view) else "a worker"
        yield f"Nobody is at work on this batch. It waits for {what}."


def _queued(view: View) -> int:
    return next((share.count for share in view.shares if share.kind == "queued"), 0)


def _runs(count: int, one: str, more: str) -> str:
    return f"1 score {one}" if count == 1 else f"{count} scores {more}"


def sorted_counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Reason and count, the largest first; zeros are left out."""
    return sorted(((name, n) for name, n in counts.items() if n), key=lambda item: (-item[1], item[0]))


def clock(ms: int) -> str:
    """`14:03:27`, in UTC: a history has one clock, its readers may be anywhere."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")


def date(ms: int) -> str:
    """`2026-01-31 14:03`, in UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def per_minute(rate: float | None) -> str:
    """A rate for people: `4.2`, `1,200`; `-` where nothing can be said."""
    if rate is None:
        return "-"
    return f"{rate:.1f}" if rate < 100 else f"{rate:,.0f}"  # noqa: PLR2004


def seconds(ms: int) -> str:
    """A stretch of time as people say it: `0.4 s`, `12 s`, `3 min`, `2.5 h`."""
    value = ms / 1000
    if value < 10:  # noqa: PLR2004 - below, a tenth is worth reading
        return f"{value:.1f} s"
    if value < 120:  # noqa: PLR2004
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"  # noqa: PLR2004


def left(seconds_left: float | None) -> str:
    """An estimate for people: `about 4 min`; empty where nothing can be said."""
    return "" if seconds_left is None else f"about {seconds(round(seconds_left * 1000))}"
