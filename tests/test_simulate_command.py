"""`evalbus simulate` as it is called: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workers.cli import app
from workers.simulating import schedule as schedules
from workers.simulating.mutants import Mutant
from workers.simulating.schedule import drawn, settings_of, write_schedule

RUNNER = CliRunner()


def test_schedules_that_hold_end_with_0_and_are_summed_up(tmp_path: Path) -> None:
    """On the screen and as JSON; no file of a violation is left."""
    told = RUNNER.invoke(
        app, ["simulate", "--seeds", "6", "--json", str(tmp_path / "x.json"), "--found", str(tmp_path / "v.json")]
    )
    assert told.exit_code == 0, told.output
    assert "from seed 1: 6 schedules" in told.output
    assert "0 broken" in told.output
    found = json.loads((tmp_path / "x.json").read_text())
    assert (found["schedules"], found["stuck"], found["found"]) == (6, 0, [])
    assert all(check["violations"] == 0 for check in found["checks"])
    assert not (tmp_path / "v.json").exists()


def test_no_fault_can_be_chosen(tmp_path: Path) -> None:
    """Then nothing goes wrong."""
    told = RUNNER.invoke(app, ["simulate", "--faults", "", "--found", str(tmp_path / "v.json")])
    assert told.exit_code == 0
    assert "faults: none" in told.output


def test_a_violation_ends_with_5_and_its_file_repeats_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed, the property, the schedule, and how it is seen again."""
    mutant = Mutant("ledger", "step_counter")
    file = tmp_path / "v.json"
    monkeypatch.setattr(
        "workers.simulating.many.drawn",
        lambda settings, seed, kinds, _: drawn(settings, seed, kinds, mutant),
    )
    told = RUNNER.invoke(app, ["simulate", "--seed", "6", "--seeds", "2", "--found", str(file)])
    assert told.exit_code == 5, told.output
    assert "ledger.S1: what is answered adds up" in told.output
    assert f"again: evalbus simulate --schedule {file}" in told.output.replace("\n", "")
    assert json.loads(file.read_text())["property"].startswith("ledger.S1")
    held = RUNNER.invoke(app, ["simulate", "--schedule", str(file)])  # its check is there again
    assert held.exit_code == 0, held.output
    read = schedules.read_schedule
    monkeypatch.setattr("workers.simulating.command.read_schedule", lambda path: replace(read(path), mutant=mutant))
    assert RUNNER.invoke(app, ["simulate", "--schedule", str(file)]).exit_code == 5


def test_a_fleet_is_forecast(tmp_path: Path) -> None:
    """As a table, and as JSON."""
    told = RUNNER.invoke(
        app, ["simulate", "--fleet", "10", "--runs", "50", "--preempt", "2/h", "--json", str(tmp_path / "f.json")]
    )
    assert told.exit_code == 0, told.output
    assert "time to close" in told.output
    found = json.loads((tmp_path / "f.json").read_text())
    assert (found["scored"] + found["poison"], found["fleet"]["workers"]) == (50, 10)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--faults", "earthquake"], "there is no fault 'earthquake'"),
        (["nowhere"], "nowhere"),
        (["--schedule", "nowhere.json"], "cannot be read"),
        (["--fleet", "3", "--schedule", "x.json"], "three answers to one question"),
        (["--fleet", "3", "--preempt", "often"], "is no rate"),
        (["--fleet", "3", "--resume", "never"], "neither prefix nor fresh"),
        (["--fleet", "3", "--call-time", "5 parsecs"], "--call-time"),
        (["--fleet", "3", "--json", "no/such/place.json"], "does not exist"),
    ],
)
def test_wrong_input_is_one_line_and_ends_with_2(arguments: list[str], complaint: str) -> None:
    """Before anything is played."""
    told = RUNNER.invoke(app, ["simulate", *arguments])
    assert told.exit_code == 2, told.output
    lines = [line for line in told.output.splitlines() if line]
    assert len(lines) == 1
    assert lines[0].startswith("evalbus: ")
    assert complaint in lines[0]


def test_a_written_schedule_says_which_suite_it_is_of(tmp_path: Path) -> None:
    """One of our own by its name."""
    write_schedule(drawn(settings_of(None), 3).of(()), "run.P1: …", None, tmp_path / "s.json")
    told = json.loads((tmp_path / "s.json").read_text())
    assert (told["suite"], told["built_in"], told["seed"]) == ("disks", True, 3)
