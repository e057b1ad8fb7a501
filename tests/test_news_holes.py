"""What is told of holes while a batch runs, on a real server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bus.redis_bus import RedisBus
from bus.target import Target
from tests.model_stage import ModelStage, OnServer
from tests.stage import BATCH
from tests.suites import COMPARED
from workers.news import holes
from workers.news.holes import FirstHoles
from workers.results.whole import whole_of

CASES = "".join(
    f'{{"id": "{name}", "input": "{asked}", "target": "ONE"}}\n'
    for name, asked in (("a", "one"), ("b", "two"), ("c", "three"))
)
SOLVER = 'async def solve(case, run):\n    return {"one": "ONE"}[case.input]\n'


async def test_the_first_hole_of_a_reason_is_told_once_and_not_when_all_have_ended(
    server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the run and what it says; ten thousand of the same are one line."""
    stage = ModelStage(OnServer(server), tmp_path)
    await stage.declare(COMPARED, agent_DOT_py=SOLVER, cases_DOT_jsonl=CASES)
    ended = await stage.run_to_the_end()
    assert isinstance(stage.bus, RedisBus)
    whole = await whole_of(stage.bus, BATCH)
    assert whole is not None
    before, told = replace(ended, intended=4), FirstHoles(stage.bus, whole)  # as it was while one more was to come
    assert await told.news(ended) == []
    assert await told.news(replace(before, hole_reasons={})) == []
    assert await told.news(before) == ["first solver_error: b#1   KeyError: 'two' (agent.py:2)"]
    assert await told.news(before) == []
    monkeypatch.setattr(holes, "_MOST", 1)  # a large batch: its last runs are looked through
    said = ["first solver_error: c#1   KeyError: 'three' (agent.py:2)"]
    assert await FirstHoles(stage.bus, whole).news(before) == said
    monkeypatch.setattr(holes, "_MOST", 0)
    said = ["first solver_error: listed by evalbus show b --only solver_error"]
    assert await FirstHoles(stage.bus, whole).news(before) == said
    await stage.aclose()
