"""An Inspect task while workers and scorers are killed and stopped: the log is that of an undisturbed run."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
from inspect_ai.log import read_eval_log

from bus.port import RunState
from tests.fleet import Stage, Watch, eventually
from tests.inspected import flat, reduced, undisturbed
from tests.suites import write_suite
from workers.processes.role_options import Role
from workers.suite import load_suite

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

TOML = 'lease = "1s"\nconcurrency = 4\nmax_deliveries = 9\n[inspect]\ntask = "tasks.py@counting"\n'
TASK = """\
import asyncio
import os
from pathlib import Path

from inspect_ai import Epochs, Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import accuracy, scorer, stderr, Score
from inspect_ai.solver import generate, solver

GATES = Path(os.environ.get("EVALBUS_TEST_GATES", "/"))


async def passed(name):
    while str(GATES) != "/" and not (GATES / name).exists():
        await asyncio.sleep(0.01)


@solver
def gated():
    async def solve(state, generate):
        await passed(state.metadata["gate"])
        return await generate(state)

    return solve


def counter(messages, tools, tool_choice, config):
    output = ModelOutput.from_content("mockllm/model", str(len(messages[-1].text)))
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    return output


@scorer(metrics=[accuracy(), stderr()])
def right():
    async def score(state, target):
        await passed("scoring")
        good = state.output.completion == target.text and state.epoch != 2
        return Score(value="C" if good else "I", answer=state.output.completion)

    return score


@task
def counting():
    words = ["a", "bb", "ccc", "dddd", "eeeee"]
    return Task(
        dataset=[
            Sample(id=i, input=word, target=str(len(word)), metadata={"gate": f"g{i % 2}"})
            for i, word in enumerate(words)
        ],
        solver=gated(), scorer=right(), epochs=Epochs(2, "max"),
        model=get_model("mockllm/model", custom_outputs=counter),
    )
"""


async def test_killed_and_stopped_workers_and_scorers_leave_the_log_of_an_undisturbed_run(tmp_path: Path) -> None:
    """One worker is killed in the middle of its samples, one is stopped until its successor has its runs, and wakes.

    Then a scorer is killed with verdicts under way. Each (id, epoch) is in the log once, from whoever held its run.
    """
    with Stage.opened(tmp_path) as stage:
        suite = write_suite(stage.root / "suite", TOML, **{"tasks.py": TASK})
        command = stage.start("run", suite, "--workers", 2, "--scorers", 1, "--batch", "b", "--json", "out.json")
        async with stage.watch("b") as batch:
            await eventually(lambda: batch.held(count=8), "both workers to hold runs")
            killed, stopped = stage.roles(Role.WORKER)
            assert stopped.options is not None
            his = {row.run for row in await batch.held() if row.consumer == stopped.options.name}
            killed.signal(signal.SIGKILL)
            stopped.signal(signal.SIGSTOP)

            stage.open_gate("g0")
            stage.open_gate("g1")

            async def taken() -> bool:
                rows = [await batch.row(run) for run in his]
                return any(row is not None and row.gen > 1 for row in rows)

            await eventually(taken, "a run of the stopped one to be taken over")
            stopped.signal(signal.SIGCONT)
            await eventually(lambda: batch.held(RunState.SCORING), "a verdict to be under way")
            stage.roles(Role.SCORER)[0].signal(signal.SIGKILL)
            await eventually(lambda: _scoring_anew(batch), "a verdict by another epoch")
            await eventually(lambda: _refused(batch), "the stopped one to be refused")
            stage.open_gate("scoring")
            done = await command.end()
            assert done.code == 0, done.err
            exported = await stage.call("export", "b", "out.eval")
            assert exported.code == 0, exported.err
        log = await asyncio.to_thread(read_eval_log, str(stage.root / "out.eval"))
        own = await undisturbed(load_suite(suite))
    assert flat(log) == flat(own)
    assert await asyncio.to_thread(reduced, log) == await asyncio.to_thread(reduced, own)
    assert asyncio.run.__module__ == "asyncio.runners", "Inspect has patched asyncio for all tests of this process"
    assert log.samples is not None
    keys = [(sample.id, sample.epoch) for sample in log.samples]
    assert keys == [(number, epoch) for epoch in (1, 2) for number in range(5)]
    told = [sample.metadata["evalbus"] for sample in log.samples]
    assert max(one["gen"] for one in told) > 1
    assert max(one["epoch"] for one in told) > 1
    result = json.loads((stage.root / "out.json").read_text())
    assert log.eval.metadata is not None
    assert log.eval.metadata["evalbus"]["snapshot_id"] == result["snapshot_id"]
    assert (result["accepted"], result["bins"], result["holes"]) == (10, {"pass": 5, "fail": 5}, {})
    assert sum(result["rejects"].values()) > 0


async def _refused(batch: Watch) -> bool:
    return bool((await batch.bus.counters(batch.batch)).refusals)


async def _scoring_anew(batch: Watch) -> bool:
    return any(row.epoch > 1 for row in await batch.held(RunState.SCORING))
