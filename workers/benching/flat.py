"""What a run costs as a batch grows, and as the number of batches on a server does; a worker's memory on the way.

Three curves, each point a figure a run: time, commands, processor time, server memory.

    one batch     of 1,000 runs, of 10,000, of 100,000, each on a server of its own
    many batches  small ones, a few open at a time, one after another on one server; the first tenth against the last
    memory        of a worker process, looked at while it drives the runs of one long batch
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bus.types import BatchId
from workers.benching.driving import Cost, Stage, staged
from workers.benching.kinds import WARM, Kind, SuiteOptions, make_suite
from workers.benching.measuring import resident_memory
from workers.benching.spread import Spread
from workers.processes.role_options import Role
from workers.suite import Suite

__all__ = ["Flat", "FlatOptions", "Held", "Point", "measure_flat", "sizes_up_to"]

_SMALLEST = 1_000
_SMALL = 20  # runs of each of many batches
_OPEN = 16  # of them at a time: an idle role looks for new batches once a second, and that is no cost
_REPEATED = 10_000  # runs of the largest batch that is measured in every round
_TENTHS = 10
_LOOK_EVERY = 0.5  # seconds between two looks at the workers' memory


@dataclass(frozen=True, slots=True)
class Point:
    """What a run cost, once a round. `size`: runs of the batch, or batches that the server has had."""

    size: int
    costs: tuple[Cost, ...]

    def spread(self, of: Callable[[Cost], float]) -> Spread:
        """Of a figure."""
        return Spread.of(of(cost) for cost in self.costs)

    def as_json(self) -> dict[str, object]:
        """Everything for one run."""
        named: dict[str, Callable[[Cost], float]] = {
            "ms_per_run": lambda cost: 1000 * cost.seconds / cost.runs,
            "commands_per_run": lambda cost: cost.commands_per_run,
            "bytes_per_run": lambda cost: cost.bytes_per_run,
            "log_bytes_per_run": lambda cost: cost.server.log_bytes / cost.runs,
        }
        told: dict[str, object] = {"size": self.size}
        told |= {name: self.spread(of).as_json() for name, of in named.items()}
        told["cpu_ms_per_run"] = {
            name: self.spread(lambda cost, name=name: cost.cpu_ms_per_run[name]).as_json()  # type: ignore[misc]
            for name in self.costs[0].cpu_ms_per_run
        }
        told["resident_mb"] = {name: round(value / 1e6, 1) for name, value in self.costs[-1].memory.items()}
        return told


@dataclass(frozen=True, slots=True)
class Held:
    """What the largest worker process held in memory when so many runs had been scored."""

    runs: int
    resident: int


@dataclass(frozen=True, slots=True)
class Flat:
    """The three curves."""

    batches: tuple[Point, ...]
    many: tuple[Point, ...]
    memory: tuple[Held, ...]

    def growth(self, of: Callable[[Cost], float]) -> float:
        """A figure of the largest batch over that of the smallest."""
        return self.batches[-1].spread(of).median / self.batches[0].spread(of).median

    def as_json(self) -> dict[str, object]:
        """All points."""
        return {
            "one_batch": [point.as_json() for point in self.batches],
            "many_batches": [point.as_json() for point in self.many],
            "worker_memory": [{"runs": one.runs, "resident_mb": round(one.resident / 1e6, 1)} for one in self.memory],
        }


def sizes_up_to(runs: int) -> list[int]:
    """1,000 and its tenfolds, up to `runs`, which is the last; at least two, or there is no curve."""
    sizes = []
    size = _SMALLEST if runs > _SMALLEST else max(runs // _TENTHS, 1)
    while size < runs:
        sizes.append(size)
        size *= 10
    return [*sizes, runs]


@dataclass(frozen=True, slots=True)
class FlatOptions:
    """How far. `runs`: of the largest batch; `batches`: small ones on one server."""

    runs: int
    batches: int
    workers: int
    rounds: int


async def measure_flat(directory: Path, options: FlatOptions, tell: Callable[[str], None]) -> Flat:
    """`directory` is made; `tell` gets a line for each figure. Raises ViolationError for an incomplete history.

    Batches above 10,000 runs are measured once: they are long enough to be their own average.
    """
    sizes = sizes_up_to(options.runs)
    suites = {size: make_suite(directory / f"suite-{size}", Kind.NOOP, SuiteOptions(size)) for size in sizes}
    warm = make_suite(directory / "suite-warm", Kind.NOOP, SuiteOptions(min(options.runs, WARM)))
    costs: dict[int, list[Cost]] = {size: [] for size in sizes}
    memory: list[Held] = []
    for number in range(options.rounds):
        for size, suite in suites.items():
            if number and size > _REPEATED:
                continue
            async with staged(directory / f"{size}-{number}", options.workers) as stage:
                await stage.warm(warm)
                held: list[Held] = []
                watching = asyncio.create_task(_watch(stage, BatchId("flat"), held))
                try:
                    costs[size].append(await stage.run(suite, Kind.NOOP, BatchId("flat")))
                finally:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
            memory = held if size == sizes[-1] else memory
            tell(f"one batch of {size:,} runs   {1000 / costs[size][-1].runs_per_s:.3f} ms a run")
    many = await _many(directory, options, tell)
    return Flat(tuple(Point(size, tuple(costs[size])) for size in sizes), tuple(many), tuple(memory))


async def _watch(stage: Stage, batch: BatchId, held: list[Held]) -> None:
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        sizes = [resident_memory(pid) or 0 for pid in stage.fleet.members(Role.WORKER).values()]
        held.append(Held((await stage.bus.counters(batch)).scored, max(sizes, default=0)))


async def _many(directory: Path, options: FlatOptions, tell: Callable[[str], None]) -> Sequence[Point]:
    suite = make_suite(directory / "suite-small", Kind.NOOP, SuiteOptions(_SMALL))
    points: list[Point] = []
    async with staged(directory / "small", options.workers) as stage:
        await stage.warm(suite)
        await stage.plan()
        tenth = max(options.batches // _TENTHS, 1)
        for first in range(0, options.batches, tenth):
            names = [BatchId(f"small-{number}") for number in range(first, min(first + tenth, options.batches))]
            before, started = await stage.look(), time.perf_counter()
            await _through(stage, suite, names)
            seconds = time.perf_counter() - started
            cost = before.cost(len(names) * _SMALL, seconds, await stage.look())
            points.append(Point(first + len(names), (cost,)))
            for name in names:
                await stage.check(suite, Kind.NOOP, name)
            tell(f"{first + len(names):,} batches of {_SMALL}   {1000 / cost.runs_per_s:.3f} ms a run")
    return points


async def _through(stage: Stage, suite: Suite, names: Sequence[BatchId]) -> None:
    left = iter(names)

    async def one_after_another() -> None:
        for name in left:
            await stage.create(suite, name)
            await stage.ended(name)

    await asyncio.gather(*(one_after_another() for _ in range(_OPEN)))
