"""`evalbus show`: what was answered, run by run, on a real server."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bus.errors import InputError, ViolationError
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import RunId
from tests.judge_stage import JudgeStage, judged_by
from tests.model_stage import A, B, ModelStage, OnServer
from tests.stage import BATCH
from tests.suites import COMPARED
from workers import redaction
from workers.events import said_in
from workers.histories.exporting import export_batch
from workers.lab import Lab
from workers.results import showing
from workers.results.columns import columns_on
from workers.results.showing import Shown, show_batch, show_run, tell
from workers.results.showing_files import show_file

CASES = """\
{"id": "a", "input": "one", "target": "ONE"}
{"id": "b", "input": "two", "target": "2"}
{"id": "c", "input": "no", "target": "3"}
"""
SOLVER = """\
async def solve(case, run):
    await run.note("first line\\n    second \\x1b[2J line")
    return {"one": "ONE", "two": "too" * 40}[case.input]
"""


@pytest.fixture
async def stage(server: Target, tmp_path: Path) -> AsyncIterator[ModelStage]:
    """A pass, a fail with a long answer, and a hole."""
    one = ModelStage(OnServer(server), tmp_path)
    await one.declare(COMPARED, agent_DOT_py=SOLVER, cases_DOT_jsonl=CASES)
    await one.run_to_the_end()
    yield one
    await one.aclose()


def bus_of(stage: ModelStage) -> RedisBus:
    """As the command has it."""
    assert isinstance(stage.bus, RedisBus)
    return stage.bus


async def table(stage: ModelStage, *only: str, suite: Path | None = None, output: Path | None = None) -> list[str]:
    """The lines of the table."""
    console = Console(file=io.StringIO(), width=40)
    await show_batch(bus_of(stage), BATCH, only, suite, output, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


async def in_full(stage: ModelStage, run: str) -> str:
    """One run's screen."""
    console = Console(file=io.StringIO(), width=40)
    await show_run(bus_of(stage), BATCH, run, None, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_each_run_has_its_verdict_its_answer_and_its_target(stage: ModelStage) -> None:
    """A hole has what it said last; what is long is cut, and a line is a line however narrow the screen."""
    title, *rows = await table(stage)
    assert title.split() == ["run", "verdict", "answer", "target"]
    assert rows[0].split() == ["a#1", "pass", "ONE", "ONE"]
    assert rows[1].split()[:2] == ["b#1", "fail"]
    assert rows[1].split()[2] == ("too" * 20)[:59] + "…"
    assert rows[2].startswith("c#1  solver_error  KeyError: 'no'")


async def test_an_exported_history_shows_the_same_as_the_server(stage: ModelStage, tmp_path: Path) -> None:
    """But for what a hole said of itself, which is in no history; inputs and targets where the suite is named."""
    file = tmp_path / "b.jsonl"
    await export_batch(bus_of(stage), BATCH, file)

    def of_file(run: str | None = None, *only: str, suite: Path | None = None) -> list[str]:
        console = Console(file=io.StringIO(), width=40)
        show_file(str(file), run, only, suite, None, console)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue().splitlines()

    title, *rows = of_file(suite=stage.suite.source)
    assert [title, *rows[:2]] == (await table(stage))[:3]
    assert rows[2].split() == ["c#1", "solver_error", "-", "3"]
    assert of_file(B, suite=stage.suite.source) == (await in_full(stage, B)).splitlines()
    assert [line.split()[0] for line in of_file(None, "fail")] == ["run", "b#1", "inputs"]
    with pytest.raises(InputError, match=r"no run is 'fial' \(did you mean fail\?\)"):
        of_file(None, "fial")
    assert of_file("b", suite=stage.suite.source) == (await in_full(stage, B)).splitlines()
    with pytest.raises(InputError, match=r"no run 'b#2' in batch 'b'; did you mean b#1"):
        of_file("b#2")
    file.write_text(file.read_text().replace("too", "two"))
    with pytest.raises(ViolationError):
        of_file()


async def test_only_those_that_are_asked_for(stage: ModelStage) -> None:
    """By bin or by a hole's reason; a word that is neither is one line with the nearest."""
    assert [line.split()[0] for line in await table(stage, "fail", "solver_error")] == ["run", "b#1", "c#1"]
    with pytest.raises(InputError, match=r"no run is 'fial' \(did you mean fail\?\)"):
        await table(stage, "fial")


async def test_the_file_has_all_of_it(stage: ModelStage, tmp_path: Path) -> None:
    """A JSON object a run, nothing cut."""
    assert await table(stage, output=tmp_path / "all.jsonl") == [f"3 runs in {tmp_path / 'all.jsonl'}"]
    rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    asked, said = {"input": "two", "target": "2", "metadata": {}}, {"answer": "too" * 40, "value": "0", "detail": ""}
    assert rows[1] == {"run": "b#1", "verdict": "fail", **asked, **said}
    assert (rows[2]["answer"], rows[2]["verdict"]) == (None, "solver_error")


async def test_a_run_is_shown_with_its_transcript(stage: ModelStage) -> None:
    """Line by line, and nothing in it that a terminal would obey; an unknown one is met with the nearest."""
    text = await in_full(stage, B)
    assert "input      two\n" in text
    assert f"answer     {'too' * 40}\n" in text
    assert "  1   note         first line\n                       second \N{REPLACEMENT CHARACTER}[2J line\n" in text
    assert "\x1b" not in text
    assert await in_full(stage, "b") == text, "a case with one trial is its run"
    with pytest.raises(InputError, match=r"no run 'b#2' in batch 'b'; did you mean b#1"):
        await in_full(stage, "b#2")


async def test_without_the_suite_the_answers_are_shown_all_the_same(stage: ModelStage) -> None:
    """And why there is no target; a suite that has changed since is said to have."""
    suite = next(stage.root.rglob("suite.toml"))
    suite.write_text(suite.read_text() + "strip = false\n")
    assert (await table(stage))[-1] == f"{suite} has changed since the batch was made"
    suite.unlink()
    assert (await table(stage))[0].split() == ["run", "verdict", "answer"]
    assert (await table(stage))[-1] == "inputs and targets are in the suite, which is not at hand: --suite DIR"


def test_when_none_is_of_that_kind_the_others_are_counted() -> None:
    """`--only fail` where every run is a hole: the next word to ask for is on the screen."""
    rows = [Shown(RunId(f"{n}#1"), "over_budget", None, "", "", None, ()) for n in range(3)]
    console = Console(file=io.StringIO(), width=200)
    tell([], "b", ["fail"], None, console, (row.verdict for row in rows))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == ["no run of b is fail", "there are: over_budget 3"]


def test_columns_stand_below_each_other_whatever_a_terminal_needs_for_a_letter() -> None:
    """An ideograph takes two places, a mark above a letter none; a blank that keeps words together is a blank."""
    console = Console(file=io.StringIO())
    found = [Shown(RunId(f"{one}#1"), "pass", "1", "", "", None, ()) for one in ("日本語", "e\u0301te\u0301", "plain")]
    tell(found, "b", (), None, console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "run       verdict  answer", "日本語#1  pass     1", "e\u0301te\u0301#1     pass     1", "plain#1   pass     1",
    ]  # fmt: skip
    longest = replace(found[0], run=RunId("x" * 200))
    assert columns_on(console, [["run", "verdict"], [longest.run, "pass"], ["a#1", "fail"]]) == [
        "run  verdict", f"{longest.run}  pass", "a#1  fail",
    ]  # fmt: skip
    lines = showing.in_full("b", replace(found[0], answer="12\u00a0000\u202e"))
    assert "answer     12 000\N{REPLACEMENT CHARACTER}" in lines


def test_a_call_that_the_model_asks_for_reads_as_a_call_and_not_as_the_wire_has_it() -> None:
    """Its words first, then each call; a result beside its tool. What is not as it should be is shown as it is."""
    call = {"id": "call_98", "name": "distance", "arguments": '{"city": "Oslo"}'}
    assert [*said_in({"kind": "model", "reply": {"text": "I look.", "tool_calls": [call, 7]}})] == [
        "I look.",
        'calls distance {"city": "Oslo"}',
        "calls 7",
    ]
    results = [{"tool": "distance", "ok": True, "observation": 840}, {"tool": "book", "observation": "no"}, "odd"]
    assert [*said_in({"kind": "tools", "results": results})] == ["distance: 840", "book failed: no", "odd"]
    for odd in ({"kind": "model"}, {"kind": "model", "reply": 3}, {"kind": "tools", "results": None}, {"kind": "note"}):
        assert [*said_in(odd)] == []


@pytest.fixture
def lab() -> Iterator[Lab]:
    """The judge's endpoint."""
    with Lab(seed=1) as one:
        yield one


async def test_what_the_judge_said_stands_beside_its_grade(server: Target, lab: Lab, tmp_path: Path) -> None:
    """Its words are kept by their digest; the screen has the words."""
    stage = JudgeStage(OnServer(server), tmp_path)
    await stage.judge(judged_by(lab), {"a": "It greets. GRADE: C"})
    stage.planner()
    stage.worker()
    stage.scorer()
    await stage.closed()
    assert "value      C: It greets. GRADE: C\n" in await in_full(stage, A)
    await table(stage, output=tmp_path / "all.jsonl")
    row = json.loads((tmp_path / "all.jsonl").read_text())
    assert (row["value"], row["judgement"]) == ("C", "It greets. GRADE: C")
    await stage.aclose()
    redaction.forget()
