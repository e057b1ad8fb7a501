"""The figures that are to be reached. A bench is no gate: what was not reached is said, and changes no exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from workers.benching.kinds import Kind
from workers.benching.result import Report
from workers.benching.spread import Spread, quantile, ratios

__all__ = ["Bar", "bars_of"]

_PEERS: Mapping[str, float] = {"taskiq": 3.0, "dramatiq": 2.0, "huey": 1.1, "docket": 4.0, "streaq": 4.0}
_LARGEST = 100_000
"""Runs of the batch that the bar speaks of; growth up to a smaller one is told with its size."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One of them, measured. `sense`: whether more is better."""

    figure: str
    measured: float
    sense: Literal["at least", "at most"]
    bar: float
    unit: str = ""

    @property
    def reached(self) -> bool:
        """Equal is enough."""
        return self.measured >= self.bar if self.sense == "at least" else self.measured <= self.bar

    @property
    def words(self) -> str:
        """`reached`, or not."""
        return "reached" if self.reached else "not reached"

    def as_json(self) -> dict[str, object]:
        """All that is known."""
        return {
            "figure": self.figure,
            "measured": float(f"{self.measured:.4g}"),
            "sense": self.sense,
            "bar": self.bar,
            "unit": self.unit,
            "reached": self.reached,
        }


def bars_of(report: Report) -> list[Bar]:
    """Those whose figures were measured."""
    return [*_rates(report), *_peers(report), *_waits(report), *_growth(report)]


def _rates(report: Report) -> Iterator[Bar]:
    if (noop := report.of(Kind.NOOP)) is not None:
        if noop.of_bare is not None:
            yield Bar("no-op runs : bare loop", noop.of_bare.median, "at least", 0.5)
        commands = noop.spread(lambda one: one.ours.commands_per_run).median
        yield Bar("server commands a no-op run", commands, "at most", 30)
        memory = noop.spread(lambda one: one.ours.bytes_per_run).median
        yield Bar("server memory a no-op run", memory, "at most", 2_500, "B")
    if (fanout := report.of(Kind.FANOUT)) is not None:
        yield Bar("three-way fan-out", fanout.rate.median, "at least", 400, "runs/s")
    if (model := report.of(Kind.MODEL)) is not None:
        yield Bar("model call of 64 chunks", model.rate.median, "at least", 500, "runs/s")
        yield Bar("commands sent a run with a model call", model.sent_per_run, "at most", 12)
    if report.calls is not None:
        share = ratios(report.calls.ours, report.calls.bare).median
        yield Bar("script calls : bare hiredis", share, "at least", 0.7)
    if report.startup is not None:
        median = Spread.of(report.startup.ours).median
        yield Bar("evalbus run of ten cases, start to end", median, "at most", 3.0, "s")


def _peers(report: Report) -> Iterator[Bar]:
    noop = report.of(Kind.NOOP)
    if noop is None:
        return
    for name, bar in _PEERS.items():
        rates = report.peers.get(name)
        theirs: Spread | None = None if rates is None else rates.rate
        if theirs is not None:
            yield Bar(f"no-op runs : {name}", ratios(noop.rate.values, theirs.values).median, "at least", bar)


def _waits(report: Report) -> Iterator[Bar]:
    if report.recovery is not None:
        worst = quantile(report.recovery.leases, 0.99)
        yield Bar("kill -9 to the next lease, 99th percentile", worst, "at most", 1.5, "lease times")


def _growth(report: Report) -> Iterator[Bar]:
    if report.flat is None:
        return
    first, last = report.flat.batches[0].size, report.flat.batches[-1].size
    what = f"a run at {last:,} : at {first:,}" + ("" if last >= _LARGEST else f" (the bar is about {_LARGEST:,})")
    yield Bar(f"time of {what}", report.flat.growth(lambda cost: cost.seconds / cost.runs), "at most", 1.1)
    yield Bar(f"commands of {what}", report.flat.growth(lambda cost: cost.commands_per_run), "at most", 1.1)
