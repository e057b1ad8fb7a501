"""A broken machine among real processes: what becomes of the batch, and where it is told."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.redis_bus import RedisBus
from bus.rests import Rests
from bus.server import unix_url
from bus.target import Target
from bus.types import ConsumerId, Plane
from tests.batches import FixedDoor
from tests.fleet import Stage, eventually
from tests.suites import write_suite
from workers.runtime import SystemRuntime

RUNS = 10
CASES = "".join(f'{{"id": "c{n}", "input": "1", "target": "1"}}\n' for n in range(RUNS))

WRITING = """\
cases = "cases.jsonl"
lease = "1s"
concurrency = 4
solver = {python = "agent.py:solve"}
scorer = {kind = "exact"}
[workspace]
"""
AGENT = """\
async def solve(case, run):
    await run.workspace.write("done.txt", case.input)
    return case.input
"""
TOOL_OF_ITS_OWN = """\
cases = "cases.jsonl"
solver = {command = ["our-own-agent"]}
scorer = {kind = "exact"}
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own; whatever it starts there must be gone at its end."""
    with Stage.opened(tmp_path) as one:
        yield one


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc, and sets their limits")
async def test_a_worker_whose_disk_is_full_is_told_of_and_costs_the_batch_nothing(stage: Stage, server: Target) -> None:
    """It can write nothing at all, its own log as little as a workspace; it was there first, with four free slots."""
    url = unix_url(Path(server.path or ""))
    suite = write_suite(stage.root / "suite", WRITING, **{"cases.jsonl": CASES, "agent.py": AGENT})
    full = stage.start("worker", "--url", url, "--suite", suite, "--name", "full", "--home", stage.root / "other")
    resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    run = stage.start("run", suite, "--workers", 0, "--url", url, "--batch", "b", "--json", "out.json")
    async with stage.watch("b", url) as batch:
        [rest] = await eventually(batch.bus.rests.all, "it to rest")
        assert (rest.consumer, rest.why.endswith("File too large")) == ("full", True), rest

        async def is_told() -> bool:
            return "takes nothing" in run.err.read_text()

        await eventually(is_told, "whoever follows the batch to be told of it")
        said = await stage.call("status", "--url", url)
        assert any(line.startswith("resting    full on ") for line in said.out.splitlines()), said.out
        looked = await stage.call("doctor", "--url", url)
        assert looked.code == 1
        assert "! machines" in looked.out
        stage.start("worker", "--url", url, "--suite", suite, "--batch", "b")
        done = await run.end()
        resource.prlimit(full.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        full.process.send_signal(signal.SIGTERM)
        assert (await full.end()).code == 0
    result = json.loads((stage.root / "out.json").read_text())
    assert (done.code, result["accepted"], result["holes"]) == (0, RUNS, {}), done.err


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
async def test_a_worker_without_the_suites_program_takes_nothing_of_it(stage: Stage, server: Target) -> None:
    """The one of fifty that was set up differently: each of its runs was a hole, `solver_error`, within a moment."""
    url = unix_url(Path(server.path or ""))
    suite = write_suite(stage.root / "suite", TOOL_OF_ITS_OWN, **{"cases.jsonl": CASES})
    program = stage.root / "bin" / "our-own-agent"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec cat\n")
    program.chmod(0o755)
    with_it = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    run = stage.start("run", suite, "--workers", 0, "--url", url, "--batch", "b", "--json", "out.json")
    async with stage.watch("b", url) as batch:
        await eventually(batch.counters, "the batch")
    lacking = await stage.call("worker", "--url", url, "--suite", suite)
    assert lacking.code == 2
    assert "solver.command: there is no program 'our-own-agent' on this machine" in lacking.complaint
    stage.start("worker", "--url", url, "--suite", suite, "--batch", "b", env=with_it)
    assert (await run.end()).code == 0
    result = json.loads((stage.root / "out.json").read_text())
    assert (result["accepted"], result["holes"]) == (RUNS, {})
    shutil.rmtree(program.parent)


async def test_what_a_consumer_said_is_forgotten_when_it_does_not_come_back(server: Target) -> None:
    """Killed while it rested: nobody takes its word back. What nobody of ours has written is left out."""
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    rests = Rests(bus.link, Plane.LIVE, 0)
    try:
        await rests.tell("gone", "a", "its disk is full", -61.0)
        await rests.tell("late", "a", "its disk is full", -50.0)
        await bus.link.command("HSET", "evb:{live.0}:rests", "odd", "no JSON")
        assert [one.consumer for one in await rests.all()] == ["late"]
        await rests.tell("here", "b", "no way\nto the store", 10.0)
        assert [one.consumer for one in await bus.rests.all()] == ["here", "late"]
        kept = await bus.link.command("HKEYS", "evb:{live.0}:rests")
        assert sorted(kept) == [b"here", b"late"]
        assert (await rests.all())[0].line == "here on b takes nothing, and looks again in 10 s: no way to the store"
        await rests.tell("here", "b", "", 0.0)
        assert [one.consumer for one in await rests.all()] == [ConsumerId("late")]
    finally:
        await bus.aclose()
