"""Job queues that others use, on the same server with the same settings, by as many worker processes.

They carry a job over one hop where a run of ours makes three, and keep no history. The figure to compare is still what
a user would have instead: jobs that do nothing, enqueued, executed, their results stored.

Each has an adapter of one small file, `<name>_jobs`, and is installed by the dependency group `bench` alone. One that
is not there, or does not run, is named with its error. It is no measurement, and it isn't left out.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bus.connection import Endpoint
from bus.wire import Wire
from workers.benching.measuring import ServerCounts, cpu_seconds, server_counts

__all__ = ["PEERS", "JobRate", "Peer", "Unable", "measure_peer"]

_STARTING = 30.0  # seconds until a worker takes jobs
_SILENCE = 20.0  # seconds without one more result: it has stopped, or lost some
_LOOK_EVERY = 0.02  # seconds between two looks at what is stored, each of which costs the server half a millisecond
_AT_ONCE = 10_000  # keys in one step of a scan
_GRACE = 3.0


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue, and where it keeps its results: in keys of a pattern, or as the fields of a hash."""

    name: str
    packages: tuple[str, ...]
    pattern: str = ""
    table: str = ""
    adapter: str = ""
    """The module; empty: the one here that is called so."""

    @property
    def module(self) -> str:
        """Its adapter."""
        return self.adapter or f"workers.benching.peers.{self.name}_jobs"

    def version(self) -> str:
        """`taskiq 0.13.0, taskiq-redis 1.2.4`."""
        return ", ".join(f"{package} {_version(package) or 'not installed'}" for package in self.packages)

    @property
    def missing(self) -> list[str]:
        """Packages of it that are not installed."""
        return [package for package in self.packages if _version(package) is None]

    async def stored(self, wire: Wire) -> int:
        """How many results there are."""
        if self.table:
            return int(await wire.call("HLEN", self.table))
        keys: set[bytes] = set()  # a scan may name one twice
        cursor = b"0"
        while True:
            cursor, found = await wire.call("SCAN", cursor, "MATCH", self.pattern, "COUNT", _AT_ONCE)
            keys.update(found)
            if cursor == b"0":
                return len(keys)


PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer("streaq", ("streaq",), pattern="streaq:bench:task:results:*"),
        Peer("taskiq", ("taskiq", "taskiq-redis"), pattern="bench:*"),
        Peer("docket", ("pydocket",), pattern="bench:results:*"),
        Peer("arq", ("arq",), pattern="arq:result:*"),
        Peer("dramatiq", ("dramatiq",), pattern="bench-results:*"),
        Peer("huey", ("huey",), table="huey.results.bench"),
        Peer("celery", ("celery",), pattern="celery-task-meta-*"),
    )
}


@dataclass(frozen=True, slots=True)
class JobRate:
    """What some jobs took."""

    jobs: int
    seconds: float
    server: ServerCounts
    cpu_s: float
    """Of the workers."""

    @property
    def jobs_per_s(self) -> float:
        """By the wall's clock."""
        return self.jobs / self.seconds

    @property
    def cpu_ms_per_job(self) -> float:
        """Of workers and server."""
        return 1000 * (self.cpu_s + self.server.cpu_s) / self.jobs


@dataclass(frozen=True, slots=True)
class Unable:
    """Why there is no figure."""

    error: str


async def measure_peer(peer: Peer, endpoint: Endpoint, jobs: int, workers: int, log: Path) -> JobRate | Unable:
    """`endpoint`: of an empty server; `log`: a file for all that its processes say."""
    if peer.missing:
        return Unable(f"{', '.join(peer.missing)} is not installed (pip install --group bench, or make bench)")
    wire = await Wire.open(endpoint.address())
    with log.open("wb") as said:
        processes: list[asyncio.subprocess.Process] = []

        async def start(*words: str) -> asyncio.subprocess.Process:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", peer.module, *words,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=said,
            )  # fmt: skip
            processes.append(process)
            return process

        try:
            url = endpoint.target.url
            fleet = [await start("work", url) for _ in range(workers)]
            source = await start("enqueue", url, str(jobs))
            for process in processes:
                await _ready(process)
            return await _measure(peer, wire, jobs, fleet, source)
        except (OSError, RuntimeError, TimeoutError) as error:
            return Unable(f"{str(error) or 'it did not come up in time'}; {_last_words(log)}")
        finally:
            await _end(processes)
            wire.close()


async def _ready(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(_STARTING):
        while (line := await process.stdout.readline()).strip() != b"ready":
            if not line:
                raise RuntimeError("a process of it ended as it started")


async def _measure(
    peer: Peer, wire: Wire, jobs: int, fleet: Sequence[asyncio.subprocess.Process], source: asyncio.subprocess.Process
) -> JobRate:
    assert source.stdin is not None
    before, used = await server_counts(wire), _cpu(fleet)
    started = time.perf_counter()
    source.stdin.write(b"go\n")
    stored, changed = 0, started
    while stored < jobs:
        await asyncio.sleep(_LOOK_EVERY)
        now = await peer.stored(wire)
        if now != stored:
            stored, changed = now, time.perf_counter()
        elif time.perf_counter() - changed > _SILENCE:
            raise RuntimeError(f"only {stored:,} of {jobs:,} results were ever stored")
    seconds = time.perf_counter() - started
    return JobRate(jobs, seconds, await server_counts(wire) - before, _cpu(fleet) - used)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu(fleet: Sequence[asyncio.subprocess.Process]) -> float:
    return sum(cpu_seconds(process.pid) or 0.0 for process in fleet)


async def _end(processes: Sequence[asyncio.subprocess.Process]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    try:
        async with asyncio.timeout(_GRACE):
            await asyncio.gather(*(process.wait() for process in processes))
    except TimeoutError:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await asyncio.gather(*(process.wait() for process in processes))


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
