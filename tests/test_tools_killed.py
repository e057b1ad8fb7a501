"""A tool that kills the process that calls it, in real processes: its run's doing, and nobody else's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet import Stage
from tests.suites import write_suite

SUITE = """\
cases = "cases.jsonl"
concurrency = 5
lease = "60s"
max_deliveries = 2
quorum = 1
[solver]
python = "agent.py:solve"
[scorer]
kind = "exact"
[tools.far]
python = "agent.py:far"
effects = "none"
remote = true
"""

AGENT = """\
import asyncio
import os
import time
from pathlib import Path

GATES = Path(os.environ["EVALBUS_TEST_GATES"])

def far(what):
    with (GATES / "calls").open("a") as log:
        log.write(f"{what} {os.getpid()}\\n")
    if what == "kill":
        time.sleep(0.4)
        os._exit(3)
    return what

async def solve(case, run):
    while case.id == "bad" and len(list(GATES.glob("begun-*"))) < 4:
        await asyncio.sleep(0.01)
    (GATES / f"begun-{case.id}").touch()
    if case.id != "bad":  # they are in the middle of something whenever it dies
        await asyncio.sleep(1)
    return await run.tools.call("far", what=case.input)
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Nothing has run in it yet."""
    with Stage.opened(tmp_path / "stage") as one:
        yield one


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_tool_that_kills_its_worker_ends_and_the_runs_beside_it_are_scored(stage: Stage, workers: int) -> None:
    """Its first death takes them along. From then on it dies alone: another one beside it would be their last."""
    names = [*(f"good{number}" for number in range(4)), "bad"]  # what is taken over first is held when it dies again
    cases = [{"id": one, "input": "kill" if one == "bad" else "1", "target": "1"} for one in names]
    data = "".join(json.dumps(one) + "\n" for one in cases)
    suite = write_suite(stage.root / "suite", SUITE, **{"agent.py": AGENT, "cases.jsonl": data})
    done = await stage.start(
        "run", suite, "--workers", workers, "--scorers", 1, "--batch", "b", "--json", "out.json"
    ).end()
    result = json.loads((stage.root / "out.json").read_text())
    assert result["runs"] == {f"good{number}#1": "pass" for number in range(4)}, done.err
    assert set(result["holes"]) <= {"poison", "solver_error"}  # its run dies with it, or is told that it was given up
    assert sum(result["holes"].values()) == 1
    calls = Counter(line.split()[0] for line in (stage.gates / "calls").read_text().splitlines())
    assert calls["kill"] <= 2
