"""Solvers that use their model as nobody meant it: each run ends under its own name, and the books are in order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.model_stage import (
    ASKS_ONCE,
    BATCH,
    SHORT,
    A,
    InMemory,
    ModelStage,
    Moment,
    OnServer,
    asked,
    settled,
    suite_of,
)
from tests.stage import ONE_CASE
from workers.lab import Lab

IN_MEMORY = pytest.mark.parametrize("stage", ["memory"], indirect=True)


@pytest.fixture(params=["memory", "server"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ModelStage]:
    """Nothing declared yet, in either place."""
    place = InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("server"))
    one = ModelStage(place, tmp_path)
    yield one
    await one.aclose()


# --- tasks of the solver's own ----------------------------------------------------------------------------

LEAVES_CALLS_BEHIND = """\
import asyncio
async def goes_on(run):
    for n in range(1000):
        await run.model.complete(f"LAB-ANSWER: {n}")
left = set()
async def solve(case, run):
    left.add(asyncio.ensure_future(goes_on(run)))
    return (await run.model.complete(f"LAB-ANSWER: {case.input}")).text
"""


async def test_a_task_that_the_solver_left_behind_asks_nothing_after_the_answer(stage: ModelStage) -> None:
    """Its next question was announced between the answer and the seal, which was refused for it: the run was lost."""
    with Lab(seed=1) as lab:
        await stage.declare(suite_of(lab, lease=SHORT), agent_DOT_py=LEAVES_CALLS_BEHIND, cases_DOT_jsonl=ONE_CASE)
        counters = await stage.run_to_the_end()
        assert counters.bins["pass"] == 1
        assert (await stage.row(A)).gen == 1
        assert asked(lab) <= 3
        settled(counters, lab)


GOES_ANOTHER_WAY = """\
import asyncio
async def solve(case, run):
    first = (await run.model.complete(f"LAB-ANSWER: {case.input}")).text
    second = asyncio.ensure_future(run.model.complete(f"LAB-ANSWER: {run.gen}"))
    await asyncio.wait([second])  # which does not cancel it when it is cancelled itself
    return first
"""


async def test_a_solver_that_starts_over_does_not_wait_for_its_former_self(stage: ModelStage) -> None:
    """A task of it was left where it had asked something else, and nobody else had a turn: the run timed out."""
    with Lab(seed=1) as lab:
        toml = suite_of(lab, 'timeout = "5s"', lease=SHORT)
        await stage.declare(toml, agent_DOT_py=GOES_ANOTHER_WAY, cases_DOT_jsonl=ONE_CASE)
        stage.planner()
        first = stage.worker(Moment("before", "seal"))
        await first.halted()
        stage.worker()
        stage.scorer()
        counters = await stage.closed()
        assert counters.hole_reasons == {}
        assert await stage.kinds_of(A) == ["turned", "model", "model", "answer"]
        assert counters.reserved == 0


# --- solvers that do not take no for an answer ------------------------------------------------------------

ASKS_ON = """\
async def solve(case, run):
    for _ in range(2):  # one more, and it would outlive the test
        try:
            return (await run.model.complete("x")).text
        except BaseException:
            pass
"""


@IN_MEMORY
async def test_a_run_that_is_over_asks_nothing_more(stage: ModelStage) -> None:
    """The solver swallows its cancellation and asks again: that was sent, and paid for, by a run that had ended."""
    with Lab(seed=1, mischief={"model.drop": 1.0}) as lab:
        await stage.declare(
            suite_of(lab, "quorum = 1", "retry_budget = 0"), agent_DOT_py=ASKS_ON, cases_DOT_jsonl=ONE_CASE
        )
        counters = await stage.run_to_the_end()
        assert counters.hole_reasons == {"endpoint_error": 1}
        assert asked(lab) == 1
        settled(counters, lab)


# --- what cannot be asked ---------------------------------------------------------------------------------


@IN_MEMORY
@pytest.mark.parametrize("limit", ["2**60", "-5", "0", "'10'", "1e3", "True"])
async def test_a_limit_that_is_none_is_the_solvers_error(stage: ModelStage, limit: str) -> None:
    """The steps refuse such an estimate: the run was handed from worker to worker, and ended as poison."""
    with Lab(seed=1) as lab:
        code = f"async def solve(case, run):\n    await run.model.complete('x', max_tokens={limit})\n"
        await stage.declare(suite_of(lab, "quorum = 1"), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
        counters = await stage.run_to_the_end()
        assert counters.hole_reasons == {"solver_error": 1}
        assert "max_tokens" in (await stage.row(A)).detail
        assert asked(lab) == 0


async def test_a_call_from_another_event_loop_is_refused_and_leaves_no_reservation(stage: ModelStage) -> None:
    """A plain solver is a thread: with `asyncio.run` its request was announced, and nobody dropped it."""
    code = "import asyncio\ndef solve(case, run):\n    return asyncio.run(run.model.complete('x')).text\n"
    with Lab(seed=1) as lab:
        await stage.declare(suite_of(lab, "quorum = 1"), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
        counters = await stage.run_to_the_end()
        assert counters.hole_reasons == {"solver_error": 1}
        assert "async def" in (await stage.row(A)).detail
        assert (await stage.bus.counters(BATCH)).reserved == 0
        assert asked(lab) == counters.spent == 0


async def test_a_message_that_is_no_object_is_named(stage: ModelStage) -> None:
    """It said `TypeError: 'int' object is not iterable`."""
    with Lab(seed=1) as lab:
        code = "async def solve(case, run):\n    await run.model.complete(['x'])\n"
        await stage.declare(suite_of(lab, "quorum = 1"), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
        await stage.run_to_the_end()
        assert "a message is an object" in (await stage.row(A)).detail


# --- what it costs ----------------------------------------------------------------------------------------


async def test_a_page_in_the_place_of_an_answer_costs_what_the_endpoint_says(stage: ModelStage) -> None:
    """A proxy's sign-in page: nothing was generated, and the prompt was billed as if somebody had read it."""
    with Lab(seed=1) as lab:
        lab.misbehave("model", "html", 2)
        await stage.declare(suite_of(lab), agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=ONE_CASE)
        counters = await stage.run_to_the_end()
        assert counters.bins["pass"] == 1
        settled(counters, lab)


# --- holders that are gone --------------------------------------------------------------------------------

ASKS_LATE = """\
import asyncio
async def solve(case, run):
    if case.id == "a" and run.gen == 1:
        await asyncio.Event().wait()
    return (await run.model.complete(f"LAB-ANSWER: {case.input}")).text
"""


async def test_a_run_that_waits_for_a_dead_holders_place_makes_way_for_who_frees_it(stage: ModelStage) -> None:
    """What a dead worker held is taken over one at a time: the first waited for the place of the one behind it."""
    with Lab(seed=1) as lab:
        toml = suite_of(lab, "concurrency = 2", 'slots = 1\nreclaim = "1s"', lease=SHORT)
        await stage.declare(toml, agent_DOT_py=ASKS_LATE)
        stage.planner()
        first = stage.worker(Moment("after", "open_call"))
        await first.halted()
        stage.worker()
        stage.scorer()
        counters = await stage.closed()
        assert counters.hole_reasons == {}
        settled(counters, lab)


async def test_a_worker_whose_runs_all_wait_still_takes_over_what_a_dead_one_held(stage: ModelStage) -> None:
    """It has no room for another run, and what it waits for is held by one that only it can take over."""
    with Lab(seed=1) as lab:
        toml = suite_of(lab, "concurrency = 1", 'slots = 1\nreclaim = "1s"', lease=SHORT)
        await stage.declare(toml, agent_DOT_py=ASKS_ONCE)
        stage.planner()
        first = stage.worker(Moment("after", "open_call"))
        await first.halted()
        stage.worker()
        stage.scorer()
        counters = await stage.closed()
        assert counters.hole_reasons == {}
        settled(counters, lab)
