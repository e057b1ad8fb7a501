"""From the death of a worker to its run's next lease.

The workers that die are machines that vanish: SIGKILL, and nobody starts them again under their names (a fleet's own
would find at once what they held). Each holds one run, whose solver sleeps in them and answers at once anywhere else.
They die one after another at random moments, because how much of a lease time is left depends on the last heartbeat.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

from bus.history import read_history
from bus.types import BatchId
from workers.benching.driving import Stage, staged
from workers.benching.kinds import Kind, SuiteOptions, make_suite
from workers.benching.spread import quantile
from workers.benching.times import run_of, run_times
from workers.processes.role_options import Role

__all__ = ["Recovery", "measure_recovery"]

_VICTIM = "EVALBUS_BENCH_VICTIM"
_PATIENCE = 60.0  # seconds for each step
_AT_ONCE = 5  # workers that are up and die together: more would not start in time on two cores

_SOLVER = f"""\
import asyncio
import os


async def solve(case, run):
    if os.environ.get("{_VICTIM}"):
        await asyncio.sleep(600)
    return case.target
"""


@dataclass(frozen=True, slots=True)
class Recovery:
    """In lease times, one a kill."""

    leases: tuple[float, ...]
    lease_s: float

    def as_json(self) -> dict[str, object]:
        """Median and 99th percentile."""
        return {
            "lease_s": self.lease_s,
            "kills": len(self.leases),
            "kill_to_lease_p50": round(quantile(self.leases, 0.5), 3),
            "kill_to_lease_p99": round(quantile(self.leases, 0.99), 3),
        }


async def measure_recovery(directory: Path, kills: int, lease_s: float) -> Recovery:
    """`directory` is made. Raises TimeoutError when a run is not leased again."""
    found: list[float] = []
    while len(found) < kills:
        victims = min(_AT_ONCE, kills - len(found))
        found += await _some(directory / str(len(found)), victims, lease_s)
    return Recovery(tuple(found), lease_s)


async def _some(directory: Path, victims: int, lease_s: float) -> list[float]:
    options = SuiteOptions(victims, depth=1, bound=victims, lease=f"{round(lease_s * 1000)}ms", solver=_SOLVER)
    suite = make_suite(directory / "suite", Kind.NOOP, options)
    batch = BatchId("kills")
    async with staged(directory / "home", 0) as stage:
        processes = [await _victim(stage, number) for number in range(victims)]
        try:
            # A scorer and the planner; then, when every victim holds its run, a worker that outlives them.
            await stage.start(0)
            await stage.create(suite, batch)
            await stage.plan()
            await _all_leased(stage, batch, victims)
            await stage.start(1, 0)
            killed: dict[str, float] = {}
            for number, process in enumerate(processes):
                await asyncio.sleep(random.uniform(0, lease_s / 4))  # noqa: S311
                process.send_signal(signal.SIGKILL)
                killed[f"victim-{number}"] = time.time() * 1000
            async with asyncio.timeout(_PATIENCE + 3 * lease_s):
                await stage.ended(batch)
            return await _delays(stage, batch, killed, lease_s)
        finally:
            for process in processes:
                if process.returncode is None:
                    process.kill()
            await asyncio.gather(*(process.wait() for process in processes))


async def _victim(stage: Stage, number: int) -> asyncio.subprocess.Process:
    options = replace(stage.options(Role.WORKER, f"victim-{number}"), slots=1)
    log = stage.home / "logs" / f"victim-{number}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "workers.role", "evalbus worker", options.as_json(),
            stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env={**os.environ, _VICTIM: "1"},
        )  # fmt: skip


async def _all_leased(stage: Stage, batch: BatchId, runs: int) -> None:
    async def leased() -> bool:
        found = await run_times(read_history(stage.bus.link, stage.bus.keys(batch)))
        return sum(bool(one.leased) for one in found.values()) >= runs

    await stage.until(leased, _PATIENCE)


async def _delays(stage: Stage, batch: BatchId, killed: dict[str, float], lease_s: float) -> list[float]:
    """For each run whose holder was killed: lease times until it was leased again, by the clock of this machine."""
    holders: dict[str, list[tuple[int, str]]] = {}
    async for entry in read_history(stage.bus.link, stage.bus.keys(batch)):
        for part in entry.parts:
            if f"{part.fence}.{part.op} {part.verb}" == "transcript.lease commit":
                at = int(entry.id.partition("-")[0])
                holders.setdefault(run_of(entry, part), []).append((at, str(entry.envelope.get("consumer"))))
    return [
        (after[0] - killed[before[1]]) / (1000 * lease_s)
        for leases in holders.values()
        for before, after in itertools.pairwise(leases)
        if before[1] in killed
    ]
