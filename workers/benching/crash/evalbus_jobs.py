"""evalbus: a job is a run, what is enqueued together is a batch, and the name of a batch is its first job's.

A batch that is declared again under its name is the batch that is there. Its lease time is REDELIVERY. `client` brings
a planner and a scorer along.

The solver does the job itself. As `evalbus_tool_jobs` it has it done by a tool with effects outside, which is what
evalbus has for effects: such a call is never made twice, and one that has no answer ends in doubt, for a person.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bus.connection import Endpoint
from bus.history import read_history
from bus.recorded import Recorded
from bus.redis_bus import RedisBus
from bus.types import BatchId
from workers.batch_spec import spec_of
from workers.benching.crash.adapter import AT_ONCE, JOBS_FILE, WHO, Ready, main
from workers.processes import logs
from workers.processes.fleet import Fleet
from workers.processes.parent_death import die_with_parent
from workers.processes.role_options import Role, RoleOptions
from workers.runtime import SystemRuntime
from workers.suite import Suite, load_suite

__all__ = ["connected", "connected_to", "work"]

_SUITE = """\
name = "crash"
cases = "cases.jsonl"
quorum = 1
concurrency = {at_once}
max_deliveries = 10
{lease}
[solver]
python = "solver.py:solve"
[scorer]
kind = "exact"
"""
_TOOL = """\
[tools.add]
python = "solver.py:add"
effects = "outside"
timeout = "6s"
bound = "8s"
slots = 100
"""
_SOLVER = """\
from workers.benching.crash.adapter import job


async def solve(case, run):
    return await job(case.input, case.id)
"""
_TOOL_SOLVER = """\
from workers.benching.crash.adapter import job


async def add(url, name):
    return await job(url, name)


async def solve(case, run):
    return await run.tools.call("add", url=case.input, name=case.id)
"""


class _Client:
    def __init__(self, bus: RedisBus, suites: Path, url: str, redelivery: float | None, by_tool: bool) -> None:
        self._bus, self._suites, self._url, self._by_tool = bus, suites, url, by_tool
        self._lease = "" if redelivery is None else f'lease = "{redelivery:g}s"'
        self._batches: dict[str, BatchId] = {}

    async def put(self, ids: Sequence[str]) -> None:
        batch = BatchId(ids[0])
        self._batches.update(dict.fromkeys(ids, batch))
        await self._bus.create(spec_of(self._suite(ids), batch))

    async def get(self, job: str) -> str | None:
        sealed = [
            str(entry.envelope.get("consumer")) for entry in await self._history(job)
            if _verb(entry, "transcript.seal") == "commit" and str(entry.envelope.get("run")).partition("#")[0] == job
        ]  # fmt: skip
        return sealed[-1] if sealed else None

    async def recorded(self, job: str) -> str | None:
        """The job's refusals in the history, and that it was given up: `run.seal stale_gen (1), …`."""
        found: Counter[str] = Counter()
        for entry in await self._history(job):
            refused = next((part for part in entry.parts if part.verb == "reject"), None)
            if refused is not None and entry.command != "run.close":  # to try it before all is scored is no mistake
                found[f"{entry.command} {refused.reason}"] += 1
            elif entry.command == "run.hole":
                found[entry.command] += 1
        return ", ".join(f"{what} ({count})" for what, count in sorted(found.items())) or None

    async def _history(self, job: str) -> list[Recorded]:
        batch = self._batches.get(job)
        return [] if batch is None else [one async for one in read_history(self._bus.link, self._bus.keys(batch))]

    def _suite(self, ids: Sequence[str]) -> Suite:
        directory = self._suites / ids[0]
        if not directory.exists():
            directory.mkdir(parents=True)
            text = _SUITE.format(at_once=AT_ONCE, lease=self._lease) + (_TOOL if self._by_tool else "")
            (directory / "suite.toml").write_text(text)
            (directory / "solver.py").write_text(_TOOL_SOLVER if self._by_tool else _SOLVER)
            cases = (json.dumps({"id": one, "input": self._url, "target": "?"}) for one in ids)
            (directory / "cases.jsonl").write_text("\n".join(cases) + "\n")
        return load_suite(directory)


def _verb(entry: Recorded, operation: str) -> str | None:
    return next((part.verb for part in entry.parts if f"{part.fence}.{part.op}" == operation), None)


def _place() -> Path:
    return Path(os.environ[JOBS_FILE]).parent


@asynccontextmanager
async def connected_to(url: str, redelivery: float | None, *, by_tool: bool) -> AsyncIterator[_Client]:
    """The client, with a planner and a scorer."""
    logs.configure("error")  # on standard error: standard output is for answers
    home = _place() / "client"
    endpoint = Endpoint.from_options(url, home)
    bus = RedisBus(endpoint, SystemRuntime())
    fleet = Fleet(home / "logs")
    fleet.start(
        [RoleOptions(role=role, url=url, home=str(home), name=f"{role}") for role in (Role.PLANNER, Role.SCORER)]
    )
    try:
        yield _Client(bus, _place() / "suites", url, redelivery, by_tool)
    finally:
        await fleet.stop()
        await bus.aclose()
        await endpoint.aclose()


@asynccontextmanager
async def connected(url: str, redelivery: float | None) -> AsyncIterator[_Client]:
    """The client of runs whose solver does the job itself."""
    async with connected_to(url, redelivery, by_tool=False) as client:
        yield client


def work(url: str, _redelivery: float | None, ready: Ready) -> None:
    """One worker, as a process below this one: they are killed together, and nobody starts it again."""
    who = os.environ[WHO]
    options = RoleOptions(role=Role.WORKER, home=str(_place() / who), name=who)
    command = [sys.executable, "-m", "workers.role", "evalbus worker", options.as_json()]
    with subprocess.Popen(
        command, env={**os.environ, "EVALBUS_URL": url}, stderr=subprocess.PIPE, text=True,
        preexec_fn=die_with_parent(signal.SIGKILL),  # noqa: PLW1509 - no thread has been started yet
    ) as worker:  # fmt: skip
        assert worker.stderr is not None
        for line in worker.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            if '"role.started"' in line:
                ready()
    sys.exit(worker.returncode)


if __name__ == "__main__":
    main(work, connected)
