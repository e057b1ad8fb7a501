"""What `evalbus run` says of an endpoint that cannot be reached, before there is a hole that says it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from bus.port import Counters
from tests.fleet import Stage, eventually
from tests.suites import COMPARED, write_suite
from workers.news import endpoints
from workers.news.endpoints import EndpointNews

UNREAD = cast("Counters", None)
"""Logs say nothing of a batch's counts."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own; whatever it starts there must be gone at its end."""
    with Stage.opened(tmp_path) as one:
        yield one


def note(why: str, *, again: bool = True, event: str = "endpoint.unusable") -> str:
    """A line of a worker's log."""
    return json.dumps({"event": event, "why": why, "again": again, "level": "error"}) + "\n"


async def test_a_trouble_is_told_once_whoever_notes_it_and_not_what_an_earlier_command_left(tmp_path: Path) -> None:
    """Eight workers find the same closed door; a resumed batch has the logs of the day before."""
    old, new = tmp_path / "worker-1.log", tmp_path / "worker-2.log"
    old.write_text(note("yesterday"))
    news = EndpointNews(tmp_path)
    assert await news.news(UNREAD) == []
    old.write_text(note("yesterday") + note("refused"))
    new.write_text('a line for people\n"endpoint.unusable"\n' + note("refused") + note("401", again=False)[:-5])
    assert await news.news(UNREAD) == ["no answer so far: refused; it is asked again"]
    assert await news.news(UNREAD) == []
    old.write_text(note("begun anew"))
    new.unlink()
    assert await news.news(UNREAD) == ["no answer so far: begun anew; it is asked again"]


async def test_a_line_that_is_being_written_is_read_when_it_is_whole_and_a_flood_is_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a solver prints goes to the same file, and may have no end of a line."""
    log, news = tmp_path / "w.log", EndpointNews(tmp_path)
    line = note("refused")
    log.write_text(line[:20])
    assert await news.news(UNREAD) == []
    log.write_text(line)
    assert await news.news(UNREAD) == ["no answer so far: refused; it is asked again"]
    monkeypatch.setattr(endpoints, "_AT_ONCE", 100)
    log.write_text(line + "x" * 250 + "\n" + note("again"))
    told = [line for _ in range(7) for line in await news.news(UNREAD)]
    assert told == ["no answer so far: again; it is asked again"]


async def test_a_run_whose_endpoint_is_not_there_says_so_before_its_first_hole(stage: Stage) -> None:
    """The calls of a run are made again for half a minute; who looks on knows after a second or two."""
    model = '[model]\nbase_url = "http://127.0.0.1:9/v1"\nname = "m"\n'
    solver = "async def solve(case, run):\n    return await run.model.text(case.input)\n"
    suite = write_suite(stage.root / "suite", COMPARED + model, agent_DOT_py=solver)
    command = stage.start("run", suite, "--workers", 1, "--scorers", 1, "--batch", "b")

    async def told() -> bool:
        return "no answer so far: http://127.0.0.1:9: cannot be reached: Connection refused" in command.err.read_text()

    await eventually(told, "the run to say that nobody is there")
    command.process.send_signal(signal.SIGINT)
    done = await command.end()
    assert (done.code, done.err.count("no answer so far")) == (130, 1), done.err
    assert "first endpoint_error" not in done.err
