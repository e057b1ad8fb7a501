"""A run's conversation over several attempts: what is told again, what ends it, and what a solver is spared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import pytest
import structlog

from bus.port import Bus, Ref
from bus.types import Gen, LeaseId
from tests.model_stage import SHORT, A, InMemory, ModelStage, Moment, OnServer, asked, settled, suite_of
from tests.stage import BATCH, ONE_CASE
from workers.conversation import Conversation
from workers.lab import Lab
from workers.lease import Lease
from workers.runtime import SystemRuntime
from workers.solver_time import SolverTime
from workers.verdict import Over

IN_MEMORY = pytest.mark.parametrize("stage", ["memory"], indirect=True)
"""For what is decided in the worker alone."""


@pytest.fixture(params=["memory", "server"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ModelStage]:
    """Nothing declared yet, in either place."""
    place = InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("server"))
    one = ModelStage(place, tmp_path)
    yield one
    await one.aclose()


@pytest.fixture
def lab() -> Iterator[Lab]:
    """An endpoint that behaves."""
    with Lab(seed=1) as one:
        yield one


async def taken_over(
    stage: ModelStage, lab: Lab, code: str, moment: Moment, top: str = "", rest: str = ""
) -> list[str]:
    """A first worker dies at that moment, a second one goes on; what the transcript then has."""
    toml = suite_of(lab, top, rest=rest, lease=SHORT)
    await stage.declare(toml, agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    first = stage.worker(moment)
    await first.halted()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert counters.bins["pass"] == 1, counters.hole_reasons
    settled(counters, lab)
    return await stage.kinds_of(A)


AFTER_THE_FIRST = Moment("after", "bind_call")

ONE_MORE = """\
async def solve(case, run):
    await run.model.complete("one")
    await run.model.complete({second})
    return case.input
"""


async def test_a_solver_that_asks_something_else_ends_the_conversation(stage: ModelStage, lab: Lab) -> None:
    """Its first question differs: what was bound belongs to another course of things, and is left behind."""
    code = "async def solve(case, run):\n    await run.model.complete(f'gen {run.gen}')\n    return case.input\n"
    assert await taken_over(stage, lab, code, AFTER_THE_FIRST) == ["turned", "model", "answer"]
    assert asked(lab) == 2
    [row] = await stage.bus.rows(BATCH, [A])
    assert row.conversation == 1


async def test_a_solver_that_was_told_what_is_given_up_starts_over(stage: ModelStage, lab: Lab) -> None:
    """The first answer is repeated, the second question differs: both are asked in the new conversation.

    The attempt that begins with it finds nothing of what the other one left in its directory.
    """
    left = "    assert not list(run.workspace.path.iterdir())\n    (run.workspace.path / 'left').touch()\n"
    code = ONE_MORE.replace("{second}", "f'gen {run.gen}'").replace("run):\n", f"run):\n{left}")
    toml = suite_of(lab, lease=SHORT)
    await stage.declare(toml, agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    first = stage.worker(AFTER_THE_FIRST, AFTER_THE_FIRST)
    await first.halted()
    first.bus.resume()
    await first.halted()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert await stage.kinds_of(A) == ["turned", "model", "model", "answer"]
    assert asked(lab) == 4
    settled(counters, lab)


GOES_ON = """\
import asyncio
tries, again, answered = {}, asyncio.Event(), asyncio.Event()
async def solve(case, run):
    tries[run.gen] = tries.get(run.gen, 0) + 1
    if (run.gen, tries[run.gen]) == (2, 2):
        again.set()
        await answered.wait()
    await run.model.complete("one")
    try:
        await run.model.complete(f"gen {run.gen}")
    except asyncio.CancelledError:
        await again.wait()
        answered.set()
    return case.input
"""
"""Its second attempt starts over, while the first swallows its cancellation, and answers when that is at work."""


@IN_MEMORY
async def test_what_a_solver_left_behind_answers_does_not_end_the_attempt_that_took_its_place(
    stage: ModelStage, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said that nobody of this run may ask any more: the present attempt was cancelled, and its run went back."""
    monkeypatch.setattr("workers.worker._GRACE", 0.05)
    monkeypatch.setattr("workers.attendance._GRACE", 0.05)
    await stage.declare(suite_of(lab, lease="2s"), agent_DOT_py=GOES_ON, cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    first = stage.worker(AFTER_THE_FIRST, AFTER_THE_FIRST)
    await first.halted()
    first.bus.resume()
    await first.halted()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert await stage.kinds_of(A) == ["turned", "model", "model", "answer"]
    [row] = await stage.bus.rows(BATCH, [A])
    assert (row.gen, counters.bins["pass"]) == (2, 1)


async def test_what_a_solver_left_behind_comes_to_is_not_the_present_attempts_end() -> None:
    """A call of it fails for good, late: that was laid down as the verdict on the run."""
    one = Conversation(
        cast(Bus, None), SystemRuntime(), cast(Lease, None), Ref(BATCH, A, LeaseId("l"), Gen(1)), [],
        SolverTime(lambda: 0.0),
    )  # fmt: skip
    replaced = asyncio.Event()

    async def former() -> None:
        one.attendance.begin()
        await replaced.wait()
        await one.leave(Over("endpoint_error", "late"))

    async def present() -> bool:
        one.attendance.begin()
        replaced.set()
        for _ in range(5):
            await asyncio.sleep(0)
        return one.attendance.is_present()

    left_behind = asyncio.create_task(former())
    await asyncio.sleep(0)
    try:
        assert await asyncio.create_task(present())
        assert not one.verdict.done()
    finally:
        left_behind.cancel()


async def test_an_answer_before_all_was_repeated_ends_the_conversation(stage: ModelStage, lab: Lab) -> None:
    """The second attempt is content with less: what it never asked for is not part of what it answers."""
    code = (
        "async def solve(case, run):\n    if run.gen == 1:\n        await run.model.complete('one')\n"
        "    return case.input\n"
    )
    assert await taken_over(stage, lab, code, AFTER_THE_FIRST) == ["turned", "answer"]


async def test_remarks_that_differ_are_kept_and_cost_no_answer(stage: ModelStage, lab: Lab) -> None:
    """A remark with the time of day in it must not make the whole conversation be paid for again."""
    code = (
        "async def solve(case, run):\n    await run.note(f'gen {run.gen}')\n    await run.model.complete('one')\n"
        "    await run.note('done')\n    return case.input\n"
    )
    kinds = await taken_over(stage, lab, code, AFTER_THE_FIRST)
    assert asked(lab) == 1
    assert kinds == ["note", "model", "note", "note", "answer"]
    assert [event["text"] for event in await stage.events(A) if event["kind"] == "note"] == ["gen 1", "gen 2", "done"]


WRITES = """\
async def solve(case, run):
    await run.workspace.write("notes.txt", "one")
    await run.model.complete("one")
    assert run.workspace.read_text("notes.txt") == "one"
    await run.workspace.run(["sh", "-c", "echo two > more.txt"])
    await run.model.complete("two")
    return case.input
"""


async def test_a_run_that_wrote_to_its_workspace_starts_over(stage: ModelStage, lab: Lab) -> None:
    """Its successor has none of the files: it must not go on as if it had. The written file is told before the call."""
    kinds = await taken_over(stage, lab, WRITES, AFTER_THE_FIRST, rest="[workspace]\n")
    assert kinds == ["turned", "write", "model", "write", "model", "answer"]
    assert asked(lab) == 3


async def test_a_suite_may_ask_to_go_on_all_the_same(stage: ModelStage, lab: Lab) -> None:
    """Its solver writes everything again as it is told the same again."""
    kinds = await taken_over(stage, lab, WRITES, AFTER_THE_FIRST, 'resume = "prefix"', "[workspace]\n")
    assert kinds == ["write", "model", "write", "model", "answer"]
    assert asked(lab) == 2


GOES_ANOTHER_WAY = ONE_MORE.replace('"one"', 'f"gen {run.gen}"').replace("{second}", "'two'")


@IN_MEMORY
@pytest.mark.parametrize(
    ("code", "top", "why"),
    [
        (GOES_ANOTHER_WAY, "", "it went another way: its next model request is not the one that was recorded"),
        (WRITES, "", "the files that it wrote are lost"),
        (ONE_MORE.replace("{second}", "'two'"), 'resume = "fresh"', 'its suite has it start over (resume = "fresh")'),
    ],
    ids=["another way", "lost writes", "fresh"],
)
async def test_the_log_says_why_a_conversation_was_given_up(
    stage: ModelStage, lab: Lab, code: str, top: str, why: str
) -> None:
    """Whoever wonders what was paid for twice needs the true cause."""
    with structlog.testing.capture_logs() as logged:
        kinds = await taken_over(stage, lab, code, AFTER_THE_FIRST, top, "[workspace]\n")
    assert kinds[0] == "turned"
    assert [one["why"] for one in logged if one["event"] == "conversation.given_up"] == [why]


async def test_a_suite_may_ask_to_start_over_always(stage: ModelStage, lab: Lab) -> None:
    """For solvers that keep something that a repeated answer does not bring back."""
    code = ONE_MORE.replace("{second}", "'two'")
    kinds = await taken_over(stage, lab, code, AFTER_THE_FIRST, 'resume = "fresh"')
    assert kinds == ["turned", "model", "model", "answer"]
    assert asked(lab) == 3


async def test_a_command_that_changes_nothing_is_no_write(stage: ModelStage, lab: Lab) -> None:
    """Nor is one whose traces are on the list of what is not sealed."""
    code = (
        "async def solve(case, run):\n    await run.workspace.run(['true'])\n"
        "    await run.workspace.run(['sh', '-c', 'mkdir __pycache__; touch x.pyc'])\n    return case.input\n"
    )
    await stage.declare(suite_of(lab, rest="[workspace]\n"), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    await stage.run_to_the_end()
    assert await stage.kinds_of(A) == ["answer"]


async def test_waiting_for_a_slot_does_not_use_up_the_solvers_time(stage: ModelStage) -> None:
    """Twelve runs at an endpoint that takes one at a time: together they take far longer than any may."""
    with Lab(seed=1, latency=0.03, tokens=10) as lab:
        code = "async def solve(case, run):\n    await run.model.complete(case.input)\n    return case.input\n"
        ids = "".join(f'{{"id": "c{n}", "input": "{n}", "target": "{n}"}}\n' for n in range(12))
        toml = suite_of(lab, 'timeout = "2s"\nconcurrency = 12', "slots = 1")
        await stage.declare(toml, agent_DOT_py=code, cases_DOT_jsonl=ids)
        counters = await stage.run_to_the_end()
        assert counters.bins["pass"] == 12


def test_a_stopwatch_stands_while_anybody_waits() -> None:
    """Two waits that overlap are one; `restart` forgets what was before."""
    now = 0.0
    time = SolverTime(lambda: now)
    now = 1.0
    with time.stopped():
        now = 5.0
        with time.stopped():
            now = 7.0
        now = 8.0
        assert time.spent() == 1.0
    now = 9.5
    assert time.spent() == 2.5
    time.restart()
    now = 10.0
    assert time.spent() == 0.5
