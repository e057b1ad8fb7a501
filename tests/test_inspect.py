"""Inspect tasks over the roles, on a real server: the numbers are Inspect's own, and nothing is counted twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from inspect_ai.scorer import Score

from bus.errors import InputError, ViolationError
from bus.port import BatchStatus, RunRow
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import BatchId, RunId
from tests.inspected import EXAMPLES, InspectStage, flat, reduced, undisturbed
from tests.screens import console, text_of
from tests.stage import BATCH, OnServer
from workers.inspecting.scorer import UnscoredError, passes
from workers.inspecting.table import InspectTable
from workers.inspecting.target import plain
from workers.results.showing import show_batch, show_run
from workers.suite import load_suite

# The libraries below Inspect deprecate what it calls; its samples would end in that as in an error.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TASK = """\
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, accuracy, match, scorer
from inspect_ai.solver import solver


@solver
def answers():
    async def solve(state, generate):
        state.output.completion = state.input_text
        if state.input_text == "raises":
            raise ValueError("no such tool")
        return state

    return solve


@scorer(metrics=[accuracy()])
def strict():
    async def score(state, target):
        if state.input_text == "unreadable":
            raise ValueError("no grade")
        return Score(value="C" if state.output.completion == target.text else "I")

    return score


@task
def lossy():
    said = [*(["right"] * 8), "raises", "unreadable"]
    return Task(
        dataset=[Sample(id=f"s:{i}", input=text, target="right") for i, text in enumerate(said)],
        solver=answers(),
        scorer=strict(),
        model="mockllm/model",
    )
"""


@pytest.fixture
async def stage(server: Target, tmp_path: Path) -> AsyncIterator[InspectStage]:
    """Nothing declared yet."""
    one = InspectStage(OnServer(server), tmp_path)
    yield one
    await one.aclose()


# --- the numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task", "rate", "runs"),
    [("addition", 8 / 10, 10), ("shelf", 9 / 18, 18), ("capitals", 3 / 4, 4)],
)
async def test_the_metrics_are_those_of_inspect_itself(
    stage: InspectStage, tmp_path: Path, task: str, rate: float, runs: int
) -> None:
    """Plain questions; an agent with a tool, a store and epochs under two reducers; choices and a model that grades."""
    suite = await stage.of(f"{EXAMPLES}@{task}")
    await stage.run_to_the_end()
    counters = await stage.bus.counters(BATCH)
    assert counters.bins["pass"] / counters.scored == rate
    made, log = await stage.exported(tmp_path / "out.eval")
    own = await undisturbed(suite)
    assert (made.samples, made.holes) == (runs, 0)
    assert flat(log) == flat(own)
    assert await asyncio.to_thread(reduced, log) == await asyncio.to_thread(reduced, own)
    assert log.plan == own.plan
    assert log.samples is not None
    assert own.samples is not None
    for here, there in zip(log.samples, own.samples, strict=True):
        assert (here.id, here.epoch, here.input, here.target) == (there.id, there.epoch, there.input, there.target)
        assert [message.text for message in here.messages] == [message.text for message in there.messages]
        assert (here.store, here.model_usage) == (there.store, there.model_usage)
        assert _values(here.scores) == _values(there.scores)
    assert log.stats.model_usage == own.stats.model_usage


def _values(scores: dict[str, Score] | None) -> dict[str, object]:
    return {name: (score.value, score.answer, score.explanation) for name, score in (scores or {}).items()}


async def test_what_ends_without_a_score_stays_in_the_denominator(stage: InspectStage, tmp_path: Path) -> None:
    """Inspect says 8 of 8 here: it leaves out what raised. The log counts it as 0, and says what it was."""
    suite = await stage.of(_written(tmp_path, TASK, "lossy"))
    await stage.run_to_the_end()
    made, log = await stage.exported(tmp_path / "out.eval")
    assert (made.samples, made.holes) == (10, 2)
    assert log.results is not None
    assert (log.status, log.results.total_samples, log.results.completed_samples) == ("success", 10, 8)
    assert flat(log) == [("strict", "strict", None, {"accuracy": 0.8})]
    assert log.samples is not None
    lost = {str(sample.id): sample.error.message for sample in log.samples if sample.error is not None}
    assert lost == {
        "s:8": "solver_error: ValueError('no such tool')",
        "s:9": "scorer_error: ValueError: no grade",
    }
    assert log.eval.metadata is not None
    told = log.eval.metadata["evalbus"]
    assert (told["pass_rate"], told["bounds"]) == (1.0, [0.8, 1.0])
    assert told["holes"] == {"scorer_error": 1, "solver_error": 1}
    assert flat(await undisturbed(suite))[0][3] == {"accuracy": 1.0}


def _written(root: Path, code: str, task: str) -> str:
    (root / "task").mkdir()
    (root / "task" / "tasks.py").write_text(code)
    return f"{root}/task/tasks.py@{task}"


# --- the log ----------------------------------------------------------------------------------------------


async def test_the_log_names_the_snapshot_and_each_run_its_generation(stage: InspectStage, tmp_path: Path) -> None:
    """Whoever opens the log finds the batch that it is of."""
    await stage.of(f"{EXAMPLES}@capitals")
    await stage.run_to_the_end()
    _, log = await stage.exported(tmp_path / "out.eval")
    counters = await stage.bus.counters(BATCH)
    assert log.eval.metadata is not None
    told = log.eval.metadata["evalbus"]
    assert (told["batch"], told["snapshot_id"], told["rejects"]) == (BATCH, counters.snapshot_id, {})
    assert log.samples is not None
    for sample in log.samples:
        row = await stage.row(RunId(f"{sample.id}#{sample.epoch}"))
        of_run = sample.metadata["evalbus"]
        assert (of_run["run"], of_run["gen"], of_run["sealed"]) == (row.run, row.gen, row.digest)
        assert json.loads(row.value)["value"] == sample.scores["choice"].value if sample.scores else False
    assert isinstance(stage.bus, RedisBus)
    screen = console()  # and who asks for a batch's answers, what the samples say and not what was sealed
    await show_batch(stage.bus, BATCH, (), None, None, screen)
    assert [line.split() for line in text_of(screen).splitlines()] == [
        ["run", "verdict", "answer", "target"],
        ["France#1", "pass", "ANSWER:", "C", "C"],
        ["Peru#1", "pass", "ANSWER:", "A", "A"],
        ["Kenya#1", "fail", "ANSWER:", "A", "B"],
        ["Japan#1", "pass", "ANSWER:", "D", "D"],
    ]
    screen = console()
    await show_run(stage.bus, BATCH, "France", None, screen)
    assert "input      What is the capital of France?\n" in text_of(screen)
    assert "value      C: " in text_of(screen)
    assert "\ntranscript 3 events\n  1   user " in text_of(screen)


async def test_a_second_sample_of_one_run_is_refused_before_anything_is_written(
    stage: InspectStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inspect would count it as one more epoch. A run whose sealed sample is another's is found out likewise."""
    await stage.of(f"{EXAMPLES}@capitals")
    await stage.run_to_the_end()
    bus, rows = stage.bus, stage.bus.rows

    async def twice(batch: BatchId, runs: Sequence[RunId]) -> list[RunRow]:
        found = await rows(batch, runs)
        return [*found, found[0]]

    async def closed(_bus: object, _batch: BatchId) -> SimpleNamespace:
        return SimpleNamespace(status=BatchStatus.CLOSED)

    file = tmp_path / "out.eval"
    monkeypatch.setattr("workers.inspecting.log.fetch_outcome", closed)  # which would find it out itself
    monkeypatch.setattr(type(bus), "rows", lambda _self, batch, runs: twice(batch, runs))
    with pytest.raises(ViolationError, match="epoch 1, is there twice"):
        await stage.exported(file)
    assert not file.exists()


async def test_a_batch_that_is_open_or_of_another_state_of_the_task_makes_no_log(
    stage: InspectStage, tmp_path: Path
) -> None:
    """A share of what happens to be finished is no result, and other code has other metrics."""
    named = _written(tmp_path, TASK, "lossy")
    await stage.of(named)
    with pytest.raises(InputError, match="is open"):
        await stage.exported(tmp_path / "out.eval")
    await stage.run_to_the_end()
    with (tmp_path / "task" / "tasks.py").open("a") as code:
        code.write("# changed\n")
    stage.suite = load_suite(plain(f"inspect:{named}"))
    with pytest.raises(InputError, match="another state of suite 'lossy'"):
        await stage.exported(tmp_path / "out.eval")
    assert not (tmp_path / "out.eval").exists()


# --- what passes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "options", "passed"),
    [
        ("C", {}, True),
        ("I", {}, False),
        ("P", {}, False),
        ("P", {"threshold": 0.5}, True),
        ("N", {}, False),
        (0.7, {"threshold": 0.7}, True),
        (True, {}, True),
        ({"a": "C", "b": 0}, {}, False),
        ({"a": "C", "b": 0}, {"key": "a"}, True),
        ([1, 1], {}, True),
    ],
    ids=str,
)
def test_a_run_passes_by_its_value_as_a_number(value: object, options: dict[str, object], passed: bool) -> None:
    """C is 1, P a half; of several values all have to pass, or the one that is named."""
    table = InspectTable.model_validate({"task": "t.py@t", **options})
    assert passes({"s": Score(value=value)}, table)[0] is passed  # type: ignore[arg-type]


def test_what_was_left_unscored_is_no_fail() -> None:
    """A judgement that nobody made says nothing of the candidate."""
    table = InspectTable.model_validate({"task": "t.py@t", "scorer": "s"})
    for scores in ({}, {"other": Score(value="C")}, {"s": Score(value=float("nan"))}, {"s": Score(value={})}):
        with pytest.raises(UnscoredError):
            passes(scores, table)
