"""The one eval of a worker's process: runs are put in while it runs, and delivered once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.errors import InputError
from tests.waiting import PATIENCE, soon
from workers.cases import Case
from workers.inspecting import hosting
from workers.inspecting.hosting import Host, host
from workers.inspecting.loading import Loaded
from workers.inspecting.sealed import SealedSample
from workers.inspecting.solver import InspectSolver, SampleFailedError
from workers.run import Run
from workers.suite import load_suite

# The libraries below Inspect deprecate what it calls; its samples would end in that as in an error.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TASK = """\
import asyncio
import time
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import solver

HERE = Path(__file__).parent


@solver
def told():
    async def solve(state, generate):
        with (HERE / "seen").open("a") as seen:
            seen.write(f"{state.sample_id} {state.epoch}\\n")
        try:
            while state.input_text == "waits" and not (HERE / "gate").exists():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            (HERE / "cancelled").touch()
            raise
        if state.input_text == "raises":
            raise ValueError("no such tool")
        state.output.completion = f"{state.sample_id}:{state.epoch}"
        return state

    return solve


def made(*said):
    return Task(
        dataset=[Sample(id=i, input=text, target="1") for i, text in enumerate(said)],
        solver=told(), scorer=match(), epochs=3, model="mockllm/model",
    )


@task
def plain():
    return made("one", "two", "raises", "waits")


@task
def other():
    return made("one")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of the tasks."""
    (tmp_path / "tasks.py").write_text(TASK)
    return tmp_path


@pytest.fixture
async def evals() -> AsyncIterator[Host]:
    """The host of the test's loop."""
    yield host()
    await host().aclose()


def loaded(place: Path, task: str = "plain") -> Loaded:
    """A task of the file."""
    found = load_suite(f"inspect:{place}/tasks.py@{task}").place.task
    assert found is not None
    return found


def answer(sealed: SealedSample) -> str:
    """What the solver left."""
    return sealed.sample.output.completion


async def until(path: Path) -> None:
    """Wait for a file."""
    async with asyncio.timeout(PATIENCE):
        while not path.exists():
            await asyncio.sleep(0.01)


async def test_runs_that_are_put_in_together_are_delivered_once_each(place: Path, evals: Host) -> None:
    """Each to whoever waits for it, as the epoch that it is."""
    task = loaded(place)
    runs = [(name, epoch) for name in ("0", "1") for epoch in (1, 2, 3)]
    out = await asyncio.gather(*(evals.run(task, task.samples[name], epoch) for name, epoch in runs))
    assert [answer(sealed) for sealed in out] == [f"{name}:{epoch}" for name, epoch in runs]
    assert sorted((place / "seen").read_text().split("\n")[:-1]) == sorted(f"{name} {epoch}" for name, epoch in runs)


async def test_a_run_that_comes_back_is_run_again_in_an_eval_of_its_own(place: Path, evals: Host) -> None:
    """A second (id, epoch) would end Inspect's eval, and with it all others that are in it."""
    task = loaded(place)
    again = [answer(await evals.run(task, task.samples["0"], 1)) for _ in range(2)]
    assert again == ["0:1", "0:1"]
    assert answer(await evals.run(task, task.samples["1"], 1)) == "1:1"


async def test_a_run_of_another_task_waits_for_what_is_in_the_eval(place: Path, evals: Host) -> None:
    """Two evals in a process are refused; and nobody is cut off for somebody else's task."""
    task, another = loaded(place), loaded(place, "other")
    waiting = asyncio.create_task(evals.run(task, task.samples["3"], 1))
    await until(place / "seen")
    next_one = asyncio.create_task(evals.run(another, another.samples["0"], 1))
    await asyncio.sleep(0.05)
    assert not next_one.done()
    (place / "gate").touch()
    assert (answer(await waiting), answer(await next_one)) == ("3:1", "0:1")


async def test_a_run_that_is_given_up_leaves_the_eval_and_the_others_go_on(place: Path, evals: Host) -> None:
    """Its lease is gone: its solver is cancelled where it waits, and what it would have said is nobody's."""
    task = loaded(place)
    waiting = asyncio.create_task(evals.run(task, task.samples["3"], 1))
    await until(place / "seen")
    waiting.cancel()
    assert answer(await evals.run(task, task.samples["0"], 1)) == "0:1"
    await until(place / "cancelled")
    (place / "gate").touch()
    assert answer(await evals.run(task, task.samples["3"], 1)) == "3:1"


async def test_an_error_of_the_sample_is_its_own(place: Path, evals: Host) -> None:
    """It ends no eval: the next run finds it as it was."""
    solver = InspectSolver(loaded(place))
    with pytest.raises(SampleFailedError, match="no such tool"):
        await solver.solve(Case("2"), _run("2#1"))
    assert SealedSample.loads(await solver.solve(Case("0"), _run("0#1"))).sample.id == 0
    assert evals is host()


def _run(name: str) -> Run:
    from typing import Any  # noqa: PLC0415

    given: Any = {"id": name, "trial": int(name[-1])}
    return Run(case=Case(name[0]), gen=1, seed=0, workspace=None, **given)  # type: ignore[arg-type]


async def test_an_eval_that_ends_by_itself_says_why(place: Path, evals: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run waits for ever, and none is blamed for it."""

    async def fails(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("no sandbox here")

    monkeypatch.setattr(hosting, "eval_async", fails)
    task = loaded(place)
    with pytest.raises(InputError, match=r"the eval of tasks.py@plain ended: RuntimeError: no sandbox here"):
        await evals.run(task, task.samples["0"], 1)


async def test_a_task_that_is_over_ends_its_own_eval_and_no_other(evals: Host, place: Path) -> None:
    """A process has one eval at a time: by the time that an ended suite is let go of, it may be the next one's."""
    over, going = loaded(place), loaded(place, "other")
    await soon(evals.run(going, going.samples["0"], 1))
    await InspectSolver(over).aclose()
    assert evals._eval is not None
    await InspectSolver(going).aclose()
    assert evals._eval is None
