"""`evalbus show BATCH --beside OTHER`: what came out otherwise, and what was said in both."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.errors import InputError
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import RunId
from tests.model_stage import OnServer
from tests.rescoring import NEW, Rescoring, rescored
from tests.screens import console, text_of
from tests.stage import BATCH
from workers.histories.exporting import export_batch
from workers.results.beside import Side, show_beside, side_of
from workers.results.showing_files import side_of_file

CHANGED = ["run  there  here  answer there  answer here  target", "b#1  fail   pass  2             2            1"]
"""The second judge lets any number pass."""


@pytest.fixture
async def stage(server: Target, tmp_path: Path) -> AsyncIterator[Rescoring]:
    """Two batches over the same answers."""
    both = await rescored(OnServer(server), tmp_path)
    yield both
    await both.aclose()


def bus_of(stage: Rescoring) -> RedisBus:
    """As the command has it."""
    assert isinstance(stage.bus, RedisBus)
    return stage.bus


async def shown(here: Side, there: Side, *only: str, output: Path | None = None) -> list[str]:
    """The lines of the screen."""
    screen = console()
    await show_beside(here, there, only, output, screen)
    return [line.rstrip() for line in text_of(screen).splitlines()]


async def test_what_came_out_otherwise_is_shown_with_both_answers(stage: Rescoring) -> None:
    """And how many of how many, so that nobody takes the table for all of it."""
    before, now = [await side_of(bus_of(stage), batch, None) for batch in (BATCH, NEW)]
    assert await shown(now, before) == [*CHANGED, "1 of 3 runs came out otherwise"]
    assert await shown(now, now) == ["0 of 3 runs came out otherwise"]
    assert await shown(now, before, "solver_error") == ["1 of 3 runs came out otherwise"]
    with pytest.raises(InputError, match="no run is 'fail'"):  # here: there, one is
        await shown(now, before, "fail")


async def test_the_file_has_all_of_both(stage: Rescoring, tmp_path: Path) -> None:
    """The case once, and what came of it twice."""
    before, now = [await side_of(bus_of(stage), batch, None) for batch in (BATCH, NEW)]
    file = tmp_path / "changed.jsonl"
    assert await shown(now, before, output=file) == [f"1 runs in {file}", "1 of 3 runs came out otherwise"]
    said = {"answer": "2", "detail": ""}
    case = {"input": "2", "target": "1", "metadata": {}}
    there = {"verdict": "fail", "value": "0", **said}
    line = {"run": "b#1", "verdict": "pass", **case, "value": "1", **said, "there": there}
    assert json.loads(file.read_text()) == line


async def test_a_history_will_do_for_either(stage: Rescoring, tmp_path: Path) -> None:
    """The baseline of a release has left the server long ago."""
    for batch in (BATCH, NEW):
        await export_batch(bus_of(stage), batch, tmp_path / f"{batch}.jsonl")
    before = side_of_file(str(tmp_path / f"{BATCH}.jsonl"), None)
    now = await side_of(bus_of(stage), NEW, None)
    assert await shown(now, before) == [*CHANGED, "1 of 3 runs came out otherwise"]
    few = Side({run: word for run, word in now.verdicts.items() if run != RunId("b#1")}, now.shown)
    assert await shown(few, before) == ["0 of 2 runs came out otherwise · 1 are in one of the two only"]
    files = side_of_file(str(tmp_path / f"{NEW}.jsonl"), stage.suite.source)
    assert (await shown(files, before))[1].startswith("b#1  fail   pass  2             (in the batch that was scored")
