"""A violation's history, shortened: it still shows what was found, and nothing more can be left out."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from bus.checker import Check
from tests.editable import History
from tests.editable import true as true  # noqa: PLC0414 - the fixture
from tests.histories import checked, parsed
from tests.tampered import EDITS
from workers.chaos.examining import replayed
from workers.chaos.excerpts import Excerpts
from workers.chaos.keeping import Violation, shown
from workers.chaos.shortening import OF_ALL_RUNS, OF_THE_WHOLE, shortest
from workers.chaos.telling import told
from workers.explaining.reading import read_file


def check_of(lines: Sequence[bytes], name: str) -> Check:
    """What the checker finds of one property."""
    (found,) = [one for one in checked(lines).checks if one.id == name]
    return found


def broken_by(true: list[bytes], name: str) -> list[bytes]:
    """The history that breaks a property."""
    history = History.of(true)
    EDITS[name](history)
    return history.export()


def without(lines: Sequence[bytes], run: str) -> list[bytes]:
    """The history without each line that names the run."""
    history = History.of(lines)
    history.lines = [line for line in history.lines if not re.search(rf"{run}['~:]", str(line))]
    return history.export()


def before_the_last_entry(lines: Sequence[bytes]) -> list[bytes]:
    """The history that ends one entry earlier."""
    history = History.of(lines)
    entry = history.lines[-1]["id"].partition("/")[0]
    cut = [one for one in history.lines if one["id"].partition("/")[0] == entry]
    history.lines = history.lines[: -len(cut)]
    if any((one["fence"], one["op"]) == ("histogram", "close") for one in cut):
        history.footer["snapshot"] = None
    return history.export()


def test_an_export_that_is_put_together_again_is_the_same(true: list[bytes]) -> None:
    """Byte for byte, with its chain and its end: what is left of a history says what it said."""
    whole = Excerpts.of(true)
    assert sorted(whole.runs) == ["c0#1", "c1#1", "c2#1"]
    assert whole.export(len(whole.steps), whole.runs) == true


SHORTER = sorted(EDITS.keys() - OF_THE_WHOLE)
ONE_OF_EACH_FENCE = {name.partition(".")[0]: name for name in SHORTER}.values()
"""`make test` has time for these; with EVALBUS_SOAK it is all."""


@pytest.mark.parametrize("name", SHORTER if "EVALBUS_SOAK" in os.environ else ONE_OF_EACH_FENCE)
def test_nothing_more_can_be_left_out_of_the_shortest_history(true: list[bytes], name: str) -> None:
    """Neither its last entry nor a run; and what it shows is the very case that was found."""
    lines = broken_by(true, name)
    check = check_of(lines, name)
    found = shortest(lines, check)
    assert found is not None
    left = check_of(found.lines, name)
    assert left.violations > 0
    assert left.entries[0].partition("/")[0] == check.entries[0].partition("/")[0]
    assert check_of(found.lines, "history.P2").violations == check_of(found.lines, "history.P6").violations == 0
    assert not check_of(before_the_last_entry(found.lines), name).violations
    if name not in OF_ALL_RUNS:
        assert not [run for run in found.runs if check_of(without(found.lines, run), name).violations]


@pytest.mark.parametrize("name", sorted(OF_THE_WHOLE & EDITS.keys()))
def test_what_is_about_the_whole_is_shown_by_nothing_shorter(true: list[bytes], name: str) -> None:
    """A snapshot that does not follow from some of the runs, books of all that happened: both need them all."""
    history = History.of(true)
    EDITS[name](history)
    (check,) = [one for one in history.checked().broken if one.id == name]
    assert shortest(history.export(), check) is None


def test_both_runs_of_a_violation_between_two_stay(true: list[bytes]) -> None:
    """The lease of one was the other's before; the third has nothing to do with it."""
    lines = broken_by(true, "run.P3")
    found = shortest(lines, check_of(lines, "run.P3"))
    assert found is not None
    assert found.runs == ("c0#1", "c1#1")
    assert "c0#1" in check_of(found.lines, "run.P3").why


def test_a_decision_that_replay_does_not_derive_is_the_last_of_the_shortest_history(
    true: list[bytes], tmp_path: Path
) -> None:
    """Decisions depend on what other runs did, so all are in it; `evalbus replay` ends at the same place."""
    lines = broken_by(true, "ledger.S4")
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"".join(lines))
    check = replayed(whole, timed=True)
    found = shortest(lines, check)
    assert found is not None
    assert (found.entries, found.of) == (4, 40)
    short = tmp_path / "short.jsonl"
    short.write_bytes(b"".join(found.lines))
    assert replayed(short, timed=True).why == check.why
    assert parsed(found.lines[-1])["entries"] == len(found.lines) - 2


def test_a_violation_is_told_with_its_shortest_history_in_words(true: list[bytes], tmp_path: Path) -> None:
    """When, who, what, of which run, under which generation, and what came of it; the last one is the culprit."""
    whole = tmp_path / "b.jsonl"
    whole.write_bytes(b"".join(broken_by(true, "run.P4")))
    check = check_of(whole.read_bytes().splitlines(keepends=True), "run.P4")
    first, second, *words = Violation(check, whole, shown(whole, check)).told(7)
    assert first == f"seed 7: {check.property}: {check.says} [{check.entries[0]}] in {whole}"
    file = tmp_path / "b.run.P4.shortest.jsonl"
    assert second == f"  the shortest history that shows it has 19 of 41 entries, c0#1: {file}"
    assert len(words) == 19
    assert re.fullmatch(r"  \+\d+\.\d{3} s +\S+ +create +- +gen - +commit", words[0])
    assert re.fullmatch(r"  \+\d+\.\d{3} s +w1 +claim +c0#1 +gen 1 +commit", words[-1])
    assert read_file(file, "c0#1").story.run == "c0#1"


def test_a_violation_that_needs_the_whole_says_so(true: list[bytes], tmp_path: Path) -> None:
    """Plainly, instead of a file that would show nothing."""
    whole = tmp_path / "b.jsonl"
    whole.write_bytes(b"".join(broken_by(true, "snapshot.P2")))
    check = check_of(whole.read_bytes().splitlines(keepends=True), "snapshot.P2")
    assert list(Violation(check, whole, shown(whole, check)).told(7))[1:] == [
        "  no shorter history shows it than the whole"
    ]
    assert list(tmp_path.iterdir()) == [whole]


def test_a_refusal_is_told_with_its_reason_and_by_whom(true: list[bytes]) -> None:
    """A lease's holder is known by his claim, where the step does not name him."""
    (late,) = [words for words in told(true) if "stale_gen" in words and " append " in words]
    assert re.search(r" w\d +append +c1#1 +gen 1 +reject stale_gen by transcript.append$", late)
