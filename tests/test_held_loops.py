"""Who holds the event loop of a run's worker, as the server and people on other machines are told of it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bus.held_loops import HeldLoop, held_loops, note_held_loop
from bus.server import unix_url
from bus.target import Target
from bus.tombstones import Tombstone
from bus.types import Digest, RunId
from tests.batches import Batch, opened
from tests.fleet import Stage, case, eventually
from workers.news.held_loops import HeldLoopNews
from workers.processes.held_loops import rows_with_held_loops
from workers.processes.role_options import BLOCKED

ROOT = Path(__file__).parents[1]
A = RunId("c0#1")
HELD = HeldLoop("w1", 5.0, "agent.py:8")
SAID = "its solver blocked the event loop for over 5 s at agent.py:8: use asyncio.to_thread"


async def poisoned(batch: Batch) -> None:
    """A run that nobody survived."""
    held = await batch.claimed()
    for number in range(2, batch.spec.max_deliveries + 2):
        consumer = f"w{number}"
        entry = await batch.taken(held.entry, consumer)  # type: ignore[arg-type]
        await batch.bus.claim(entry, batch.lease(), consumer)  # type: ignore[arg-type]


async def test_a_run_that_is_poison_says_which_line_held_its_workers_loop(server: Target) -> None:
    """Its row says that everybody fell silent, which is all that the scripts can know."""
    async with opened(server.address(), runs=1) as batch:
        await batch.admit()
        await poisoned(batch)
        [row] = await rows_with_held_loops(batch.bus, batch.name, batch.runs)
        assert (row.hole, row.detail) == ("poison", "every worker that held it went silent")
        await note_held_loop(batch.bus, batch.name, A, replace(HELD, where="agent.py:7"))
        await note_held_loop(batch.bus, batch.name, A, HELD)
        [row] = await rows_with_held_loops(batch.bus, batch.name, batch.runs)
        assert (row.hole, row.detail) == ("poison", SAID)


async def test_a_remark_that_comes_after_its_batch_was_pruned_leaves_nothing_behind(server: Target) -> None:
    """Nobody would ever remove it: who prunes has been there."""
    async with opened(server.address(), runs=1) as batch:
        tombstone = Tombstone("/f", 1, Digest("d"), "", "closed", cleared=True)
        was = await batch.wire.call("HGET", batch.keys.registry, batch.name)
        await batch.wire.call("HSET", batch.keys.registry, batch.name, tombstone.text())
        await note_held_loop(batch.bus, batch.name, A, HELD)
        assert await batch.wire.call("EXISTS", batch.keys.loops) == 0
        await batch.wire.call("HSET", batch.keys.registry, batch.name, was)


async def test_what_is_no_remark_of_ours_is_passed_over_and_no_batch_has_thousands(server: Target) -> None:
    """A worker's user may write there what it likes; a solver that blocks does so in each of its runs."""
    async with opened(server.address(), runs=1) as batch:
        await batch.wire.call("HSET", batch.keys.loops, "x", b"\xff", "y", "[]", "z", '{"consumer": "w"}')
        for number in range(1_100):
            await note_held_loop(batch.bus, batch.name, RunId(f"r{number}"), HELD)
        assert len(await held_loops(batch.bus, batch.name)) == 1_000


async def test_who_follows_a_batch_is_told_of_each_line_once_and_of_a_few(server: Target) -> None:
    """A mistake that a thousand runs have in common is one line."""
    async with opened(server.address(), runs=1) as batch:
        news, counters = HeldLoopNews(batch.bus, [batch.name]), await batch.bus.counters(batch.name)
        assert await news.news(counters) == []
        await note_held_loop(batch.bus, batch.name, A, HELD)
        await note_held_loop(batch.bus, batch.name, RunId("c1#1"), HELD)
        assert await news.news(counters) == [f"c0#1 at w1: {SAID}"]
        for number in range(20):
            await note_held_loop(batch.bus, batch.name, RunId(f"r{number}"), replace(HELD, where=f"agent.py:{number}"))
        assert len(await news.news(counters)) == 4


HELD_FOR_EVER = """
import asyncio, pathlib, sys, threading, time
from workers.processes.watchdog import OF_RUN, watching

def tell(batch, run, held):
    def slowly():
        time.sleep(1)
        pathlib.Path(sys.argv[1]).write_text(f"{run} at {held.consumer}")
    thread = threading.Thread(target=slowly, daemon=True)
    thread.start()
    return thread

async def hold():
    while True:
        pass

async def main():
    with watching(lambda: 0.3, lambda: 0.1, tell, "w1"):
        await asyncio.sleep(0)
        await asyncio.create_task(hold(), name=f"{OF_RUN}b c0#1")

asyncio.run(main())
"""


def test_a_process_that_ends_has_told_before_who_held_its_loop(tmp_path: Path) -> None:
    """A connection takes its time beside code that does not let go: between a lease and the end it may be too short."""
    done = subprocess.run([sys.executable, "-c", HELD_FOR_EVER, tmp_path / "told"], cwd=ROOT, check=False)
    assert done.returncode == BLOCKED
    assert (tmp_path / "told").read_text() == "c0#1 at w1"


# --- processes --------------------------------------------------------------------------------------------


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own; whatever it starts there must be gone at its end."""
    with Stage.opened(tmp_path) as one:
        yield one


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
async def test_a_solver_that_blocks_a_worker_elsewhere_is_named_wherever_its_batch_is_looked_at(
    stage: Stage, server: Target
) -> None:
    """Only that worker's own log said it, on that machine. `run` and all who look said "went silent"."""
    url = unix_url(Path(server.path or ""))
    suite = stage.suite(
        [case("stuck", solver="blocks"), case("late", gate="go")],
        max_deliveries=1, quorum=1, lease="500ms", timeout="1s", concurrency=1,
    )  # fmt: skip
    there = shutil.copytree(suite, stage.root / "there" / "suite")
    run = stage.start("run", suite, "--workers", 0, "--scorers", 1, "--url", url, "--batch", "b")
    line = r"its solver blocked the event loop for over 0.5 s at agent.py:"
    async with stage.watch("b", url) as batch:
        await eventually(lambda: batch.bus.info(batch.batch), "the batch to be declared")
        first = stage.start("worker", "--url", url, "--suite", there, "--name", "far", cwd=there.parent)

        async def is_told() -> bool:
            return RunId("stuck#1") in await held_loops(batch.bus, batch.batch)

        async def is_news() -> bool:
            return f"stuck#1 at far: {line}" in run.err.read_text()

        await eventually(is_told, "the worker to say what holds it")
        await eventually(is_news, "whoever follows the batch to be told of it")
        await first.end()
        status = await stage.call("status", "b", "--url", url)
        assert re.search(rf"stuck#1   running at far, generation 1, delivery 1; {line}\d+", status.out), status
        second = stage.start("worker", "--url", url, "--suite", there, "--name", "near", cwd=there.parent)

        async def is_poison() -> bool:
            row = await batch.row("stuck#1")
            return row is not None and row.hole == "poison"

        await eventually(is_poison, "its run to be given up")
        stage.open_gate("go")
        done = await run.end()
        second.process.send_signal(signal.SIGTERM)
        await second.end()
        assert line in done.out
        for command in (("status", "b"), ("why", "b", "stuck#1"), ("show", "b", "stuck#1")):
            looked = await stage.call(*command, "--url", url)
            assert line in " ".join(looked.out.split()), looked
