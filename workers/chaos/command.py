"""`evalbus chaos`: a suite on a machine where everything fails, and what is left of it."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bus.checker import Checked
from bus.errors import InputError, ViolationError
from bus.home import home_directory
from bus.types import BatchId, Plane
from workers.chaos.batch import Crew, Storm, run_batch
from workers.chaos.examining import Examined, Opened, examine
from workers.chaos.faults import Fault, World, read_faults, world_of
from workers.chaos.keeping import keep
from workers.chaos.plan import MISCHIEF, POINTS, Point, Strike, strikes
from workers.chaos.report import Report, in_a_line
from workers.chaos.server import clock_library
from workers.chaos.stage import Lodging, Stage, lodging, staged
from workers.files import check_writable, write_whole
from workers.processes import nursery
from workers.processes.interrupt import Interrupted
from workers.processes.strays import Strays

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ChaosOptions", "run_chaos"]

_SHORTEST_STORM = 20.0  # seconds: a suite that is through in one would meet nothing


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """What the command line was given."""

    suite: Path
    seed: int
    faults: str | None
    minutes: float
    """0: one batch in each world that the faults need."""
    workers: int
    scorers: int
    home: Path | None
    json_file: Path | None
    plane: Plane = Plane.LIVE


def run_chaos(options: ChaosOptions, console: Console) -> Report:
    """Run, show, write. Raises InputError for wrong input, ViolationError when a property is broken; Interrupted."""
    if options.json_file is not None:
        check_writable(options.json_file)
    faults = read_faults(options.faults)
    strays = Strays()
    nursery.adopt_orphans()  # those of workers that are killed
    try:
        with lodging(options.suite, options.seed, options.plane) as lodged:
            report = asyncio.run(_until_told(_Chaos(options, lodged, _fitting(faults, lodged), strays).run()))
            kept = home_directory(options.home) / "chaos" / f"{lodged.suite.name}-{options.seed}"
            violations = [] if report.ok else keep(report.examined, lodged.root, kept)
    except asyncio.CancelledError:
        raise Interrupted("interrupted; nothing is kept of a chaos that has not ended") from None
    finally:
        strays.kill()
    report.show(console)
    if options.json_file is not None:
        write_whole(options.json_file, json.dumps(report.as_json(), indent=1, ensure_ascii=False) + "\n")
    for violation in violations:
        for line in violation.told(options.seed):
            print(f"evalbus: {line}", file=sys.stderr)
    if violations:
        count = "1 property" if len(violations) == 1 else f"{len(violations)} properties"
        raise ViolationError(f"seed {options.seed}: {count} broken; histories and logs are in {kept}")
    return report


async def _until_told(work: Coroutine[None, None, Report]) -> Report:
    """SIGTERM ends it as Ctrl-C does, through all that has to be cleared away."""
    task = asyncio.ensure_future(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _fitting(faults: Sequence[Fault], lodged: Lodging) -> tuple[Fault, ...]:
    """Those that can strike a suite, on this machine. Raises InputError when there is none."""
    cannot: dict[Fault, InputError] = {}
    if not lodged.uses_lab:
        remedy = "give it a [model] without base_url, or tools under the URL in EVALBUS_LAB"
        problem = "the suite does not talk to the lab, so its endpoint cannot fail"
        cannot[Fault.ENDPOINT] = InputError(problem, remedy=remedy)
    if clock_library() is None:
        problem = "the server's clock cannot be moved without libfaketime"
        cannot[Fault.SERVER_CLOCK] = InputError(problem, remedy="install it (Debian: apt-get install libfaketime)")
    found = tuple(fault for fault in faults if fault not in cannot)
    if not found:
        raise cannot[faults[0]]
    return found


class _Chaos:
    """All batches, one after the other."""

    def __init__(self, options: ChaosOptions, lodged: Lodging, faults: Sequence[Fault], strays: Strays) -> None:
        self._options, self._lodged = options, lodged
        self._faults = faults
        self._crew = Crew(options.workers, options.scorers, strays)
        self._number = 0

    async def run(self) -> Report:
        calm = await self._batch(World.SURE, None, None)
        report = Report(self._options.seed, calm.ended.spec.lease_ms)
        if calm.broken:  # no fault is needed for that
            report.examined.append(calm)
            return report
        seconds = max(_SHORTEST_STORM, 2 * calm.ended.seconds)
        plans = self._plans()
        until = time.monotonic() + 60 * self._options.minutes
        worlds = list(plans)
        while len(report.examined) < len(worlds) or time.monotonic() < until:
            world = worlds[len(report.examined) % len(worlds)]
            storm = Storm(plans[world], seconds, calm.ended.seconds)
            report.examined.append(await self._batch(world, storm, calm.checked))
            if report.stuck or report.examined[-1].broken:
                break
        return report

    async def _batch(self, world: World, storm: Storm | None, undisturbed: Checked | None) -> Examined:
        number, self._number = self._number, self._number + 1
        name = BatchId("undisturbed" if storm is None else f"chaos-{self._options.seed}-{number}")
        async with staged(self._lodged, world, number, name) as stage:
            opened = Opened.of(self._lodged.lab)
            ended = await run_batch(stage, name, self._crew, storm)
            found = await examine(stage, ended, opened, undisturbed)
        self._tell(stage, found)
        return found

    def _tell(self, stage: Stage, found: Examined) -> None:
        print(in_a_line(found, stage.world), file=sys.stderr, flush=True)

    def _plans(self) -> Mapping[World, Iterator[Strike]]:
        """A plan for each world that is needed for a fault to strike at all."""
        seed = self._options.seed
        left = set(self._faults)
        plans: dict[World, Iterator[Strike]] = {}
        for world in World:
            here = [fault for fault in self._faults if world_of(fault, world)]
            if left & set(here):
                plans[world] = self._aimed(strikes(seed, world, here, self._points()))
                left -= set(here)
        return plans

    def _points(self) -> Sequence[Point]:
        """Those that the suite's processes come by."""
        suite = self._lodged.suite
        asks = {"prompt-left", "answer-read"} if suite.model is None and suite.judge_binding is None else set()
        calls = {"call-licensed", "effect-done"} if not suite.tools else set()
        return [point for point in POINTS if point.name not in asks | calls]

    def _aimed(self, plan: Iterator[Strike]) -> Iterator[Strike]:
        """The lab's misbehaviour where the suite meets it."""
        apis = {"model"} if self._lodged.uses_model else set()
        apis |= {"tickets"} if self._lodged.tools else set()
        able = [one for one in MISCHIEF if one[0] in apis]
        for strike in plan:
            at = MISCHIEF.index(strike.mischief)
            yield replace(strike, mischief=able[math.floor(at * len(able) / len(MISCHIEF))]) if able else strike
