"""`evalbus bench`: what is measured, in which order, and what is told of it.

A round is one turn of everything that is compared with each other: with each number of workers ours, then the physical
limit with that turn's own traffic, the bare loop, and every peer. So a minute in which the machine did something else
falls upon all of them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from bus.errors import InputError
from bus.types import BatchId
from workers.benching.bare import bare_loop, physical_limit
from workers.benching.bars import bars_of
from workers.benching.calls import measure_calls
from workers.benching.counting import monitored
from workers.benching.distance import measure_distance
from workers.benching.driving import private_server, staged
from workers.benching.endpoint import ModelProcess
from workers.benching.flat import FlatOptions, measure_flat
from workers.benching.killing import measure_recovery
from workers.benching.kinds import WARM, Kind, SuiteOptions, make_suite
from workers.benching.latency import measure_latency
from workers.benching.peers import PEERS, Peer, Unable, measure_peer
from workers.benching.plot import check_plot, draw
from workers.benching.result import PeerRates, Report, Round, Throughput, traffic_of
from workers.benching.startup import measure_startup
from workers.benching.tables import markdown
from workers.files import check_writable, write_whole
from workers.suite import Suite

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["BenchOptions", "Part", "parts", "run_bench", "worker_counts"]

_COUNTED = 500  # runs at most of the batch that is watched to count what is sent
_MOST_WORKERS = 64
LEASE = 5.0
"""Seconds: the lease time at which workers are killed."""


class Part(StrEnum):
    """What `--kind` names."""

    NOOP = "noop"
    MODEL = "model"
    FANOUT = "fanout"
    CALLS = "calls"
    STARTUP = "startup"
    LATENCY = "latency"
    DISTANCE = "distance"
    FLAT = "flat"
    PEERS = "peers"


_DRAWN = (Part.NOOP, Part.MODEL, Part.FANOUT, Part.FLAT)
_RUNS: Mapping[Part, int] = {
    Part.NOOP: 2_000,
    Part.MODEL: 1_000,
    Part.FANOUT: 1_000,
    Part.CALLS: 5_000,
    Part.LATENCY: 2_000,
    Part.DISTANCE: 4_000,
    Part.FLAT: 10_000,
}
"""Of one measurement, unless `--runs` says otherwise. A peer has as many jobs as there are no-op runs."""


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What the command line says."""

    parts: frozenset[Part]
    runs: int | None
    workers: tuple[int, ...]
    rounds: int
    kills: int = 20
    batches: int = 100
    json_file: Path | None = None
    plot: Path | None = None
    markdown: bool = False

    def runs_of(self, part: Part) -> int:
        """Of one measurement."""
        return self.runs or _RUNS[part]


def parts(text: str) -> frozenset[Part]:
    """What a list of names means; `peers` brings `noop`, with which they are compared. Raises InputError."""
    try:
        found = {Part(name.strip()) for name in text.split(",")}
    except ValueError:
        names = ", ".join(Part)
        raise InputError(f"--kind: {text!r} is not a list of kinds", remedy=f"any of {names}") from None
    return frozenset(found | ({Part.NOOP} if Part.PEERS in found else set()))


def worker_counts(text: str) -> tuple[int, ...]:
    """`1,2` as numbers, in order, each once. Raises InputError."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and 1 <= int(word) <= _MOST_WORKERS for word in words):
        raise InputError(
            f"--workers: {text!r} is not a list of numbers of processes", remedy=f"1 to {_MOST_WORKERS}, such as 1,2"
        )
    return tuple(sorted({int(word) for word in words}))


async def run_bench(options: BenchOptions, console: Console) -> None:
    """Measure, print, write the files. Raises ViolationError when a history is incomplete, and InputError."""
    if options.json_file is not None:
        check_writable(options.json_file)
    if options.plot is not None:
        if options.parts.isdisjoint(_DRAWN):
            raise InputError("--plot: nothing of what is measured is drawn", remedy=f"add one of {', '.join(_DRAWN)}")
        check_plot(options.plot)
    # What the server still writes while it ends is not worth a traceback.
    with tempfile.TemporaryDirectory(prefix="evb-bench-", ignore_cleanup_errors=True) as name:
        bench = _Bench(options, console, Path(name))
        await bench.run()
    bars = bars_of(bench.report)
    if options.json_file is not None:
        told = bench.report.as_json() | {"bars": [bar.as_json() for bar in bars]}
        write_whole(options.json_file, json.dumps(told, indent=1) + "\n")
    if options.plot is not None:
        draw(bench.report, options.plot)
    if options.markdown:
        print(markdown(bench.report))
        return
    for bar in bars:
        measured = f"{bar.measured:,.4g}" if bar.measured < 1_000 else f"{bar.measured:,.0f}"  # noqa: PLR2004
        console.print(
            f"{bar.figure}: {measured} {bar.unit}".rstrip() + f"   ({bar.sense} {bar.bar:g}) {bar.words}",
            markup=False,
            soft_wrap=True,
        )


@dataclass(slots=True)
class _Bench:
    options: BenchOptions
    console: Console
    directory: Path
    report: Report = field(init=False)
    _homes: int = 0

    def __post_init__(self) -> None:
        """Nothing has been measured yet."""
        options = self.options
        self.report = Report(options.runs_of(Part.NOOP), options.workers[-1], options.rounds)

    async def run(self) -> None:
        """Everything that was asked for, the quick parts first."""
        asked, report, most = self.options.parts, self.report, self.options.workers[-1]
        for workers in self.options.workers:
            await self._throughput(workers)
        if Part.CALLS in asked:
            async with private_server(self._home()) as endpoint:
                report.calls = await measure_calls(endpoint, self.options.runs_of(Part.CALLS), self.options.rounds)
            self.tell(f"script calls   {min(report.calls.ours):,.0f} to {max(report.calls.ours):,.0f} a second")
        if Part.STARTUP in asked:
            report.startup = await measure_startup(self._home(), most, self.options.rounds)
            self.tell(f"evalbus run of ten cases   {min(report.startup.ours):.2f} to {max(report.startup.ours):.2f} s")
        if Part.LATENCY in asked:
            report.latency = await measure_latency(self._home(), self.options.runs_of(Part.LATENCY), most)
            self.tell("latencies at half the rate are measured")
            report.recovery = await measure_recovery(self._home(), self.options.kills, LEASE)
            self.tell(f"{len(report.recovery.leases)} workers were killed")
        if Part.DISTANCE in asked:
            far_runs = self.options.runs_of(Part.DISTANCE)
            report.distance = await measure_distance(self._home(), far_runs, self.options.rounds, self.tell)
        if Part.FLAT in asked:
            far = FlatOptions(self.options.runs_of(Part.FLAT), self.options.batches, most, self.options.rounds)
            report.flat = await measure_flat(self._home(), far, self.tell)

    def tell(self, line: str) -> None:
        """What has been measured by now."""
        if not self.options.markdown:
            self.console.print(line, markup=False, soft_wrap=True)

    def _home(self) -> Path:
        """A directory for each measurement; a short path, because a socket's must be short."""
        self._homes += 1
        return self.directory / str(self._homes)

    async def _throughput(self, workers: int) -> None:
        kinds = [kind for kind in Kind if Part(kind.value) in self.options.parts]
        if not kinds:
            return
        endpoint = await ModelProcess.start() if Kind.MODEL in kinds else None
        try:
            turns = [await self._prepared(kind, workers, endpoint) for kind in kinds]
            for number in range(1, self.options.rounds + 1):
                for turn in turns:
                    await self._round(turn, number)
        finally:
            if endpoint is not None:
                await endpoint.stop()
        self.report.throughput += [
            Throughput(turn.kind, workers, turn.sent_per_run, tuple(turn.rounds)) for turn in turns
        ]

    async def _prepared(self, kind: Kind, workers: int, endpoint: ModelProcess | None) -> _Turn:
        """Its suites, and what it sends: counted in a batch of its own, while somebody watches."""
        url = endpoint.url if endpoint is not None else ""
        runs = self.options.runs_of(Part(kind.value))
        warm = make_suite(self._home(), kind, SuiteOptions(min(runs, WARM), url=url))
        suite = make_suite(self._home(), kind, SuiteOptions(runs, url=url))
        counted = make_suite(self._home(), kind, SuiteOptions(min(runs, _COUNTED), url=url))
        beside = {"endpoint": endpoint.pid} if endpoint is not None and kind is Kind.MODEL else {}
        async with staged(self._home(), workers) as stage, monitored(stage.endpoint.target) as sent:
            stage.sent = sent
            cost = await stage.run(counted, kind, BatchId("counted"))
        return _Turn(kind, workers, suite, warm, beside, cost.sent / cost.runs)

    async def _round(self, turn: _Turn, number: int) -> None:
        runs, workers = turn.suite.intended, turn.workers
        async with staged(self._home(), workers, turn.beside) as stage:
            await stage.warm(turn.warm)
            ours = await stage.run(turn.suite, turn.kind, BatchId("bench"))
        async with private_server(self._home()) as endpoint:
            physical = await physical_limit(endpoint, runs, workers, traffic_of(ours, turn.sent_per_run))
        bare = None
        if turn.kind is Kind.NOOP:
            async with private_server(self._home()) as endpoint:
                bare = await bare_loop(endpoint, runs, workers)
        turn.rounds.append(Round(ours, physical, bare))
        beside = "" if bare is None else f"   bare loop {bare:,.0f}"
        self.tell(
            f"round {number}   {turn.kind}, {workers} workers: {ours.runs_per_s:,.0f} runs/s, "
            f"{ours.cpu_ms_per_run['all']:.2f} ms of processors a run   physical limit {physical:,.0f}{beside}"
        )
        if turn.kind is Kind.NOOP and Part.PEERS in self.options.parts and workers == self.options.workers[-1]:
            for peer in PEERS.values():
                await self._peer(peer, runs, workers, number)

    async def _peer(self, peer: Peer, jobs: int, workers: int, number: int) -> None:
        rates = self.report.peers.setdefault(peer.name, PeerRates(peer.version()))
        if rates.unable is not None:  # it won't the next time either
            return
        home = self._home()
        async with private_server(home) as endpoint:
            found = await measure_peer(peer, endpoint, jobs, workers, home / "peer.log")
        if isinstance(found, Unable):
            rates.unable = found
            self.tell(f"round {number}   {peer.name}: not measured: {found.error}")
        else:
            rates.rounds.append(found)
            self.tell(f"round {number}   {peer.name}: {found.jobs_per_s:,.0f} jobs/s")


@dataclass(slots=True)
class _Turn:
    """What comes round after round."""

    kind: Kind
    workers: int
    suite: Suite
    warm: Suite
    beside: Mapping[str, int]
    sent_per_run: float
    rounds: list[Round] = field(default_factory=list)
