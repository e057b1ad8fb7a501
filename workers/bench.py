"""`evalbus bench`: what a run costs beside its model call.

Two loops, in turn, on one private server with its append-only file on, medians over the rounds:

    evalbus     no-op runs through planner, worker and scorer: every fence of the path on, the history complete (it is
                exported and its decisions are counted, or the figure does not count)
    bare        the same messages through the same three streams with XADD, XREADGROUP and XACK, pipelined, by as many
                processes as there are workers: no scripts, no fences, nothing remembered

The quotient is the figure to quote: both loops share the machine, the server and the minute.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bus.connection import Endpoint
from bus.errors import ViolationError
from bus.history import read_history
from bus.port import Group
from bus.redis_bus import RedisBus
from bus.types import BatchId
from bus.wire import Wire
from workers.files import check_writable, write_whole
from workers.fleet import Fleet
from workers.job import spec_of
from workers.role_options import Role, RoleOptions
from workers.runtime import SystemRuntime
from workers.suite import Suite, load_suite

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["run_bench"]

_DEPTH = 64  # runs that a process drives at a time, and messages that the bare loop pipelines
_STREAMS = (Group.WORKER, Group.SCORER, Group.PLANNER)

_SUITE = """\
name = "noop"
cases = "cases.jsonl"
bound = 512
max_in_flight = 512
quorum = "100%"
concurrency = {depth}
lease = "30s"
[solver]
python = "noop.py:solve"
[scorer]
kind = "exact"
"""

_SOLVER = """\
async def solve(case, run):
    return case.target
"""


@dataclass(frozen=True, slots=True)
class _Measured:
    runs_per_s: float
    commands_per_run: float
    bytes_per_run: float


async def run_bench(runs: int, workers: int, rounds: int, json_file: Path | None, console: Console) -> None:
    """Measure, print, and write `json_file` if it is given. Raises ViolationError when a history is incomplete."""
    if json_file is not None:
        check_writable(json_file)
    # What the server still writes while it ends is not worth a traceback.
    with tempfile.TemporaryDirectory(prefix="evalbus-bench-", ignore_cleanup_errors=True) as name:
        home = Path(name) / "home"
        suite = _make_suite(Path(name) / "suite", runs)
        endpoint = await asyncio.to_thread(Endpoint.from_options, None, home)
        try:
            ours: list[_Measured] = []
            bare: list[float] = []
            for number in range(1, rounds + 1):
                ours.append(await _measure(endpoint, suite, home, workers, BatchId(f"bench-{number}")))
                bare.append(await _bare(endpoint, runs, workers, number))
                console.print(
                    f"round {number}   evalbus {ours[-1].runs_per_s:,.0f} runs/s   bare loop {bare[-1]:,.0f} runs/s",
                    markup=False,
                )
        finally:
            await endpoint.aclose()
    figures = {
        "runs": runs,
        "workers": workers,
        "rounds": rounds,
        "runs_per_s": round(statistics.median(one.runs_per_s for one in ours), 1),
        "bare_loop_per_s": round(statistics.median(bare), 1),
        "share_of_bare_loop": round(
            statistics.median(one.runs_per_s / other for one, other in zip(ours, bare, strict=True)), 3
        ),
        "commands_per_run": round(statistics.median(one.commands_per_run for one in ours), 1),
        "bytes_per_run": round(statistics.median(one.bytes_per_run for one in ours)),
        "kinds": {
            "noop": [round(one.runs_per_s, 1) for one in ours],
            "bare": [round(one, 1) for one in bare],
        },
    }
    console.print(
        f"no-op runs, {workers} workers, median of {rounds}: {figures['runs_per_s']:,} runs/s, "
        f"{figures['share_of_bare_loop']:.0%} of the bare loop's {figures['bare_loop_per_s']:,} runs/s; "
        f"{figures['commands_per_run']} server commands and {figures['bytes_per_run']:,} bytes of server memory a run",
        soft_wrap=True,
        markup=False,
    )
    if json_file is not None:
        write_whole(json_file, json.dumps(figures, indent=1) + "\n")


def _make_suite(directory: Path, runs: int) -> Suite:
    directory.mkdir()
    (directory / "suite.toml").write_text(_SUITE.format(depth=_DEPTH))
    (directory / "noop.py").write_text(_SOLVER)
    cases = (json.dumps({"id": f"c{number}", "input": "", "target": "x"}) for number in range(runs))
    (directory / "cases.jsonl").write_text("\n".join(cases) + "\n")
    return load_suite(directory)


async def _measure(endpoint: Endpoint, suite: Suite, home: Path, workers: int, batch: BatchId) -> _Measured:
    """One batch by a fleet that is up before the clock starts."""
    bus = RedisBus(endpoint, SystemRuntime())
    fleet = Fleet(home / "logs" / batch)
    roles = [Role.PLANNER, *[Role.WORKER] * workers, Role.SCORER]
    names = [f"{role}-{number}" for number, role in enumerate(roles)]
    fleet.start(
        [
            RoleOptions(role=role, home=str(home), suite=str(suite.root), name=name, check=False)
            for role, name in zip(roles, names, strict=True)
        ]
    )
    try:
        await _until_started(home / "logs" / batch, names)
        commands, memory = await _server_counts(bus)
        started = time.perf_counter()
        await bus.create(spec_of(suite, batch))
        while not (await bus.counters(batch)).status.ended:
            await asyncio.sleep(0.02)
        seconds = time.perf_counter() - started
        commands_after, memory_after = await _server_counts(bus)
        await _check_complete(bus, batch, suite.intended)
    finally:
        await fleet.stop()
        await bus.aclose()
    return _Measured(
        runs_per_s=suite.intended / seconds,
        commands_per_run=(commands_after - commands) / suite.intended,
        bytes_per_run=(memory_after - memory) / suite.intended,
    )


async def _until_started(logs: Path, names: Sequence[str]) -> None:
    async with asyncio.timeout(60):
        for name in names:
            while not ((logs / f"{name}.log").exists() and "role.started" in (logs / f"{name}.log").read_text()):
                await asyncio.sleep(0.02)


async def _server_counts(bus: RedisBus) -> tuple[int, int]:
    """Commands that the server has run, those inside scripts included, and the bytes of its data."""
    stats = await bus.link.command("INFO", "commandstats")
    calls = sum(
        int(line.split(b"calls=")[1].split(b",")[0])
        for line in stats.splitlines()
        if line.startswith(b"cmdstat_") and not line.startswith((b"cmdstat_info", b"cmdstat_hgetall:"))
    )
    memory = await bus.link.command("INFO", "memory")
    used = next(line for line in memory.splitlines() if line.startswith(b"used_memory_dataset:"))
    return calls, int(used.split(b":")[1])


async def _check_complete(bus: RedisBus, batch: BatchId, runs: int) -> None:
    """Every run must have been admitted, leased, sealed and scored once, and say so in the history."""
    counts = dict.fromkeys(
        ("admission.acquire", "transcript.lease", "transcript.seal", "judge.commit", "histogram.score"), 0
    )
    async for entry in read_history(bus.link, bus.keys(batch)):
        for part in entry.parts:
            name = f"{part.fence}.{part.op}"
            if part.verb == "commit" and name in counts:
                counts[name] += 1
    wrong = {name: count for name, count in counts.items() if count != runs}
    if wrong:
        raise ViolationError(f"the history of {batch} is not complete: {wrong} where {runs} were run")


# --- the bare loop ---------------------------------------------------------------------------------------


async def _bare(endpoint: Endpoint, runs: int, workers: int, number: int) -> float:
    """Runs per second of three hops without anything: the same number of messages, by `workers` processes."""
    prefix = f"bare:{number}"
    wire = await Wire.open(endpoint.address())
    for group in _STREAMS:
        await wire.call("XGROUP", "CREATE", f"{prefix}:{group.stream}", group, "0", "MKSTREAM")
    share = [runs // workers + (1 if index < runs % workers else 0) for index in range(workers)]
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "workers.bench", endpoint.target.url, prefix, str(index), str(count),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        for index, count in enumerate(share)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        await process.stdout.readline()
    started = time.perf_counter()
    await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    seconds = time.perf_counter() - started
    for group in _STREAMS:
        await wire.call("DEL", f"{prefix}:{group.stream}")
    wire.close()
    return runs / seconds


async def _bare_process(url: str, prefix: str, index: str, runs: int) -> None:
    from bus.target import parse_url  # noqa: PLC0415 - only this process needs it

    wire = await Wire.open(parse_url(url).address())
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    payload = ["run", "c000000#1"]
    left = runs
    while left > 0:
        depth = min(_DEPTH, left)
        left -= depth
        for group in _STREAMS:
            stream = f"{prefix}:{group.stream}"
            await asyncio.gather(*(wire.call("XADD", stream, "*", *payload) for _ in range(depth)))
            got = 0
            while got < depth:
                reply = await wire.call(
                    "XREADGROUP",
                    "GROUP",
                    group,
                    index,
                    "COUNT",
                    depth - got,
                    "BLOCK",
                    1000,
                    "STREAMS",
                    stream,
                    ">",
                )
                entries = reply[0][1] if reply else []
                got += len(entries)
                await asyncio.gather(*(wire.call("XACK", stream, group, entry[0]) for entry in entries))
    wire.close()


if __name__ == "__main__":
    asyncio.run(_bare_process(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
