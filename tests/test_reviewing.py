"""`evalbus review`: a score that waits for a person is shown, judged again, or given up. On a real server."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from bus.errors import InputError
from bus.redis_bus import RedisBus
from bus.target import Target
from tests.judge_stage import JudgeStage, judged_by
from tests.model_stage import A, B, OnServer
from tests.stage import BATCH
from workers import redaction
from workers.lab import Lab
from workers.results.reviewing import give_up, judge_again, show

REVIEW = '[judge]\npolicy = "review"\n'
ONCE, RIGHT = "GRADE: C | wrong-model*1", "GRADE: C"


@pytest.fixture
def lab() -> Iterator[Lab]:
    """The judge's endpoint."""
    with Lab(seed=1) as one:
        yield one


@pytest.fixture
async def stage(server: Target, lab: Lab, tmp_path: Path) -> AsyncIterator[JudgeStage]:
    """Two runs of which the first is parked: another model answered for the judge, that once."""
    one = JudgeStage(OnServer(server), tmp_path)
    await one.judge(judged_by(lab, rest=REVIEW), {"a": ONCE, "b": RIGHT})
    one.planner()
    one.worker()
    one.scorer()
    await one.until(lambda counters: counters.review == 1 and counters.scored == 1)
    yield one
    await one.aclose()
    redaction.forget()


def bus_of(stage: JudgeStage) -> RedisBus:
    """As the command has it."""
    assert isinstance(stage.bus, RedisBus)
    return stage.bus


async def said(stage: JudgeStage) -> str:
    """What the command shows."""
    console = Console(file=io.StringIO(), width=60)
    await show(bus_of(stage), BATCH, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def quiet() -> Console:
    """Where nobody looks."""
    return Console(file=io.StringIO())


async def test_what_waits_is_shown_with_who_answered(stage: JudgeStage) -> None:
    """A line a run, however long; the batch stays open meanwhile."""
    text = await said(stage)
    assert text.count("\n") == 1
    assert text.startswith("a#1   ")
    assert "the judge says that it is 'lab-1-other', bound is 'lab-1'" in text
    assert not (await stage.bus.counters(BATCH)).status.ended


async def test_a_run_that_is_judged_again_gets_the_bound_judges_verdict(stage: JudgeStage) -> None:
    """Under a newer epoch of its binding; what was said of the mismatch is no part of it any more."""
    await judge_again(bus_of(stage), BATCH, [A], quiet())
    assert (await stage.closed()).review == 0
    row = await stage.row(A)
    assert (row.bin, row.judge_epoch, row.detail) == ("pass", 2, "")
    assert await said(stage) == f"no run of {BATCH} waits for a review\n"


async def test_a_run_that_is_given_up_is_a_hole_and_its_batch_closes(stage: JudgeStage) -> None:
    """With what it waited for."""
    await give_up(bus_of(stage), BATCH, [A], quiet())
    await stage.closed()
    row = await stage.row(A)
    assert (row.hole, row.detail.startswith("given up in review: the judge says")) == ("unreviewed", True)
    assert (await stage.row(B)).bin == "pass"


@pytest.mark.parametrize("decide", [judge_again, give_up])
async def test_a_run_that_does_not_wait_is_refused_and_nothing_is_done_to_any(
    stage: JudgeStage, decide: Callable[..., Awaitable[None]]
) -> None:
    """One was mistyped: whoever decides about several wants all or none."""
    with pytest.raises(InputError, match=r"'b#1' of batch .* waits for no review"):
        await decide(bus_of(stage), BATCH, [A, B], quiet())
    assert (await stage.bus.counters(BATCH)).review == 1
    with pytest.raises(InputError, match="no batch 'nightly'"):
        await decide(bus_of(stage), "nightly", [A], quiet())
