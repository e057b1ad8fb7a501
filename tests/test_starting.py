"""`evalbus init`: what it writes is a suite, runs as it is, and takes nobody's place."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from bus.errors import InputError
from tests.fleet import Stage
from workers.formats.starting import begin
from workers.lab import Lab
from workers.suite import load_suite


def written(directory: Path, *, model: bool) -> str:
    """What is said of it."""
    console = Console(file=io.StringIO(), width=40)
    begin(directory, console, model=model)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("model", [False, True])
def test_it_is_a_suite_and_the_next_command_is_told(tmp_path: Path, model: bool) -> None:
    """Its code imports, and its scorer can compare with every target."""
    said = written(tmp_path / "a suite", model=model)
    suite = load_suite(tmp_path / "a suite")
    assert (suite.intended, suite.model is not None, list(suite.tools)) == (3, model, ["calculate"] if model else [])
    assert said.endswith(f"evalbus run '{tmp_path}/a suite'\n")
    assert ("EVALBUS_MODEL" in said) is model


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Nor is anything written beside it."""
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InputError, match="is there already, and not empty"):
        written(tmp_path, model=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.process
async def test_both_run_as_they_are(tmp_path: Path) -> None:
    """The one passes; the other asks whatever endpoint the environment names, and may be wrong."""
    with Stage.opened(tmp_path) as stage:
        assert (await stage.call("init", "plain")).code == 0
        done = await stage.call("run", "plain", "--workers", 1, "--scorers", 1)
        assert (done.code, "3 of 3 scored runs passed" in done.out) == (0, True), done.err
        assert (await stage.call("init", "asking", "--model")).code == 0
        async with Lab() as lab:
            env = {"EVALBUS_MODEL_URL": f"{lab.url}/v1", "EVALBUS_MODEL": "lab-1"}
            done = await stage.start("run", "asking", "--workers", 1, "--scorers", 1, env=env).end()
            assert "holes      none" in done.out, done.out + done.err
            assert lab.counts.model.billed > 0
