"""A fleet that is planned, and what is to be expected of it: see queues.py."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Estimate", "Fleet"]


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is planned. Times in seconds."""

    workers: int
    slots: int = 8
    """Runs that each drives at a time."""
    runs: int = 1_000
    calls: int = 4
    """Model calls of a run."""
    call_time: float = 10.0
    """The median of one."""
    spread: float = 0.6
    """Sigma of the lognormal distribution of call times: 0.6 has one in twenty take 2.7 times the median."""
    tokens: int = 1_500
    """Of a call."""
    preempted: float = 0.0
    """How often an hour a machine is taken away."""
    lease: float = 10.0
    max_deliveries: int = 5
    resume: Literal["prefix", "fresh"] = "prefix"
    bound: int | None = None
    """Runs admitted and not ended, at most; None: as many as there are slots, and half as many again."""
    model_slots: int | None = None
    """Calls at the endpoint at once; None: as many as like."""
    shards: int = 1
    """Servers, each with its share of the sixteen hash slots that batches and partitions are dealt out over."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What to expect."""

    fleet: Fleet
    seconds: float
    """Until the last run has ended."""
    steady: float
    """Runs a second in the middle half of the batch, which has no start and no tail; where shards differ, at the pace
    of the slowest, for which its close waits."""
    scored: int
    poison: int
    busy: float
    """Share of the slots' time in which a run was driven and its call at the endpoint."""
    waiting: float
    """Likewise, in which its call waited for a place at the endpoint."""
    idle: float
    """Likewise, in which there was no run."""
    gone: float
    """Likewise, in which there was no machine."""
    server: float
    """Share of the time in which the server was busy."""
    preemptions: int
    """Machines that were taken away."""
    redeliveries: int
    """Runs that were given to somebody else for it."""
    missed: float
    """Seconds from a loss to the next claim, on average."""
    tokens: int
    orphans: int
    """Of these, what was spent in vain."""

    @property
    def runs_per_hour(self) -> float:
        """Throughput."""
        return 3600 * self.scored / self.seconds if self.seconds else 0.0

    def as_json(self) -> dict[str, Any]:
        """The object of `--json`."""
        told = asdict(self)
        fleet = told.pop("fleet")
        shares = ("busy", "waiting", "idle", "gone", "server")
        rounded = {name: round(value, 4 if name in shares else 3) for name, value in told.items() if name != "fleet"}
        return {"fleet": fleet, "runs_per_hour": round(self.runs_per_hour, 2), **rounded}
