"""What `evalbus run` takes beside the work: ten runs that do nothing, from the command to its exit code.

It starts a server and its keeper, a planner, workers and two scorers, declares a batch, waits for its close, and ends
all of them again. Beside it as many interpreters as that is processes, all at once, each of which does nothing at all:
what remains above that is ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bus.errors import ViolationError
from workers.benching.kinds import Kind, SuiteOptions, make_suite
from workers.benching.spread import Spread, ratios

__all__ = ["CASES", "StartTimes", "measure_startup"]

CASES = 10
_SCORERS = 2
_PLAIN = {"OPENAI_API_KEY": "", "PYTHONPROFILEIMPORTTIME": ""}


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Seconds, a figure a round; processor seconds are those of all Python processes but the keeper."""

    processes: int
    """Of Python: the command, its roles, the server's keeper."""
    ours: tuple[float, ...]
    bare: tuple[float, ...]
    cpu_s: tuple[float, ...]

    def as_json(self) -> dict[str, object]:
        """Spreads."""
        return {
            "cases": CASES,
            "processes": self.processes,
            "seconds": Spread.of(self.ours).as_json(),
            "interpreters_alone_s": Spread.of(self.bare).as_json(),
            "times_the_interpreters": ratios(self.ours, self.bare).as_json(),
            "cpu_s": Spread.of(self.cpu_s).as_json(),
        }


async def measure_startup(directory: Path, workers: int, rounds: int) -> StartTimes:
    """`directory` is made. Raises RuntimeError when a run fails, ViolationError when it did less than it should."""
    suite = make_suite(directory / "suite", Kind.NOOP, SuiteOptions(CASES))
    processes = 1 + 1 + workers + _SCORERS + 1
    ours: list[float] = []
    bare: list[float] = []
    cpu: list[float] = []
    for number in range(rounds + 1):
        used, started = _children(), time.perf_counter()
        await _run(suite.root, directory / str(number), workers)
        seconds, used = time.perf_counter() - started, _children() - used
        started = time.perf_counter()
        await asyncio.gather(*(_nothing() for _ in range(processes)))
        if number:  # the first has the files read, and perhaps compiled: another minute's work
            ours.append(seconds)
            cpu.append(used)
            bare.append(time.perf_counter() - started)
    return StartTimes(processes, tuple(ours), tuple(bare), tuple(cpu))


async def _run(suite: Path, home: Path, workers: int) -> None:
    told = home.with_suffix(".json")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers.cli", "run", str(suite), "--workers", str(workers), "--scorers", str(_SCORERS),
        "--home", str(home), "--batch", "ten", "--json", str(told), env={**os.environ, **_PLAIN},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"evalbus run ended with {process.returncode}: {said.decode(errors='replace')[-500:]}")
    outcome = json.loads(told.read_text())
    if outcome["state"] != "closed" or outcome["accepted"] != CASES:
        raise ViolationError(f"{outcome['accepted']} of {CASES} runs were scored, the batch is {outcome['state']}")


async def _nothing() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
    await process.wait()


def _children() -> float:
    """Processor seconds of all processes that were started from here, and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
