"""Many schedules, over all cores, and what they come to together.

Each process plays whole ranges of seeds, so what a schedule costs is the schedule. The first violation ends the search;
its schedule is shrunk where it was found.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

import structlog

from workers.simulating.faults import ALL
from workers.simulating.findings import Finding, Violation
from workers.simulating.mutants import Mutant
from workers.simulating.play import Played
from workers.simulating.schedule import Schedule, drawn, settings_of
from workers.simulating.shrinking import shrunk

__all__ = ["Found", "Search", "Tally", "alone", "played_range", "search"]

_AT_ONCE: Final = 20
"""Seeds that a process plays between two reports."""
_SAMPLE: Final = 10_000
"""Times to the end of which the percentiles are formed."""


@dataclass(frozen=True, slots=True)
class Search:
    """What is played."""

    suite: Path | None = None
    """A user's; None: our own."""
    kinds: tuple[str, ...] = ALL
    mutant: Mutant | None = None
    replayed: bool = True
    """Each history is replayed, too."""
    cases: int | None = None
    """Of a user's suite, at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """A violation, and the shortest schedule that shows it."""

    violation: Violation
    schedule: Schedule


@dataclass(slots=True)
class Tally:
    """What schedules came to."""

    schedules: int = 0
    runs: int = 0
    entries: int = 0
    preemptions: int = 0
    """Counted from the histories."""
    redeliveries: int = 0
    stuck: int = 0
    """Batches that did not end."""
    lost: int = 0
    """Runs that are holes for what went wrong around them."""
    seconds: float = 0.0
    """Simulated."""
    committed: int = 0
    external: int = 0
    """Over the batches whose endpoint's books were compared."""
    tokens_ledger: int = 0
    tokens_lab: int = 0
    """Over the batches in which nothing was charged by a guess."""
    faults: Counter[str] = field(default_factory=Counter)
    examined: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    late: list[float] = field(default_factory=list)
    """Lease times from the last fault to the end."""
    found: list[Found] = field(default_factory=list)

    def add(self, played: Played, finding: Finding) -> None:
        """One schedule more."""
        checked = finding.checked
        self.schedules += 1
        self.runs += checked.intended
        self.entries += checked.entries
        self.preemptions += checked.preemptions
        self.redeliveries += checked.redeliveries
        self.stuck += not played.ended
        self.lost += finding.lost
        self.seconds += played.seconds
        if checked.effects.external is not None:
            self.committed += checked.effects.committed
            self.external += checked.effects.external
        if checked.tokens.lab is not None:
            self.tokens_ledger += checked.tokens.ledger
            self.tokens_lab += checked.tokens.lab
        self.faults.update(fault.kind for fault in played.faults)
        for check in finding.checks:
            self.examined[check.property] += check.examined
            self.violations[check.property] += check.violations
        if played.ended and played.faults:
            self.late.append(round(played.late, 3))

    def merge(self, other: Tally) -> None:
        """What another process has found."""
        for name in ("schedules", "runs", "entries", "preemptions", "redeliveries", "stuck", "lost", "seconds",
                     "committed", "external", "tokens_ledger", "tokens_lab"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        for mine, its in ((self.examined, other.examined), (self.violations, other.violations)):
            for name, count in its.items():
                mine[name] += count
        self.late = (self.late + other.late)[-_SAMPLE:]
        self.found += other.found

    def late_at(self, share: float) -> float:
        """A percentile of the times to the end."""
        ranked = sorted(self.late)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0

    def as_json(self, seed: int) -> dict[str, Any]:
        """The object of `--json`."""
        names = sorted(self.examined)
        return {
            "seed": seed,
            "schedules": self.schedules,
            "runs": self.runs,
            "entries": self.entries,
            "faults": dict(sorted(self.faults.items())),
            "preemptions": self.preemptions,
            "redeliveries": self.redeliveries,
            "stuck": self.stuck,
            "lost": self.lost,
            "checks": [
                {"property": name, "examined": self.examined[name], "violations": self.violations[name]}
                for name in names
            ],
            "effects": {"committed": self.committed, "external": self.external},
            "tokens": {"lab": self.tokens_lab, "ledger": self.tokens_ledger},
            "to_the_end_leases": {"p50": self.late_at(0.5), "p99": self.late_at(0.99), "max": self.late_at(1.0)},
            "found": [
                {
                    "seed": one.schedule.seed,
                    "suite": one.schedule.setting.name,
                    "property": one.violation.property,
                    "says": one.violation.says,
                    "entries": list(one.violation.entries),
                    "faults": [str(fault) for fault in one.schedule.faults or ()],
                }
                for one in self.found
            ],
        }


def played_range(search_: Search, seeds: range) -> Tally:
    """Play some seeds here; ends behind the first that shows a violation."""
    settings, tally = settings_of(search_.suite, search_.cases), Tally()
    with _silence():
        for seed in seeds:
            schedule = drawn(settings, seed, search_.kinds, search_.mutant)
            played, finding = schedule.found(replayed=search_.replayed)
            tally.add(played, finding)
            if finding.violations:
                first = finding.violations[0]
                tally.found.append(Found(first, shrunk(schedule, played.faults, first.id)))
                break
    return tally


def alone(schedule: Schedule) -> Tally:
    """Play one schedule, as it is."""
    tally = Tally()
    with _silence():
        played, finding = schedule.found()
    tally.add(played, finding)
    tally.found += [Found(finding.violations[0], schedule)] if finding.violations else []
    return tally


def search(search_: Search, seeds: range, tick: Callable[[Tally], None], processes: int | None = None) -> Tally:
    """Play all seeds, or until one shows a violation. `tick` is told the sum so far now and then."""
    processes = min(processes or _cores(), -(-len(seeds) // _AT_ONCE))
    pieces = iter([seeds[at : at + _AT_ONCE] for at in range(0, len(seeds), _AT_ONCE)])
    total = Tally()
    if processes <= 1:
        for piece in pieces:
            total.merge(played_range(search_, piece))
            tick(total)
            if total.found:
                break
        return total
    spawn = multiprocessing.get_context("spawn")  # a fork would take the event loops of whoever asks along
    with ProcessPoolExecutor(processes, mp_context=spawn, initializer=_be_silent) as pool:
        under_way = {pool.submit(played_range, search_, piece) for piece in islice(pieces, 2 * processes)}
        try:
            for tally in _as_they_come(under_way, pool, search_, pieces):
                total.merge(tally)
                tick(total)
                if total.found:
                    break
        finally:
            for future in under_way:
                future.cancel()
    return total


def _as_they_come(
    under_way: set[Future[Tally]], pool: ProcessPoolExecutor, search_: Search, pieces: Iterator[range]
) -> Iterator[Tally]:
    while under_way:
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            under_way.remove(future)
            yield future.result()
            for piece in islice(pieces, 1):
                under_way.add(pool.submit(played_range, search_, piece))


@contextmanager
def _silence() -> Iterator[None]:
    """What roles log is about a world that is not there; what matters of it is told as a finding."""
    if not structlog.is_configured() or not structlog.get_config()["cache_logger_on_first_use"]:
        before = structlog.get_config() if structlog.is_configured() else None
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        try:
            yield
        finally:
            structlog.reset_defaults() if before is None else structlog.configure(**before)
        return
    yield


def _be_silent() -> None:
    """Likewise, for a process that does nothing else."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL), cache_logger_on_first_use=True
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
