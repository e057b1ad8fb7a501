"""A snapshot is the accepted set, whatever the order in which it came, and its name is that of the bytes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.errors import ViolationError
from bus.port import RunRow, RunState
from bus.snapshot import Snapshot
from bus.types import RunId
from tests.gated import spec


def scored(run: str, bin_: str = "pass", *, digest: str = "", epoch: int = 1, value: str = "1") -> RunRow:
    """A run with an accepted score."""
    return RunRow(
        run=RunId(run),
        state=RunState.SCORED,
        gen=1,
        attempts=1,
        score_attempts=1,
        entry="1-0",
        head="h",
        length=1,
        epoch=epoch,
        digest=digest or f"art-{run}",
        bin=bin_,
        value=value,
        hole="",
        consumer="w1",
    )


def hole(run: str, why: str) -> RunRow:
    """A run that ended without a score."""
    return replace(scored(run), state=RunState.HOLE, bin="", value="", hole=why)


def test_the_name_is_the_one_that_the_protocol_fixes() -> None:
    """Three runs, scored in another order than they are sorted: the conformance vector's own id."""
    snapshot = Snapshot.from_rows([scored("n2", "fail", value="0"), scored("n1"), scored("n3")], spec(3))
    assert (snapshot.passed, snapshot.accepted) == (2, 3)
    assert snapshot.snapshot_id == "7b5e642b59ecbb6f46d759636d9d3f2edb87701e95ca47f45e130c348eb84f99"


def test_a_hole_is_part_of_the_name_with_its_reason() -> None:
    """A run that never started is accounted for: the vector's id, and another for another reason."""
    rows = [scored("n1"), scored("n2", "fail", value="0")]
    snapshot = Snapshot.from_rows([*rows, hole("n3", "never_started")], spec(3))
    assert snapshot.holes == {"n3": "never_started"}
    assert snapshot.snapshot_id == "60453f915a34b597b9a883911e5416440f90caf5ef706d5db1b3db5a46183778"
    assert Snapshot.from_rows([*rows, hole("n3", "poison")], spec(3)).snapshot_id != snapshot.snapshot_id


def test_the_spelling_is_one_line_of_sorted_json_with_nothing_escaped() -> None:
    """The bytes, written out: whoever re-derives the name in another language needs nothing else."""
    rows = [scored("ö/1#1", "fail", digest="d1", epoch=2, value='say "no"'), hole("a#1", "poison")]
    snapshot = Snapshot.from_rows(rows, spec(2, quorum=1))
    assert snapshot.canonical_bytes().decode() == (
        '{"accepted":1,"bins":{"fail":1,"pass":0},"holes":[["a#1","poison"]],"intended":2,"quorum":1,'
        '"rows":[["ö/1#1","d1",2,"fail","say \\"no\\""]]}'
    )


def test_runs_are_sorted_by_their_utf8_bytes() -> None:
    """U+FFEE comes before U+1F600 in UTF-8, and after it in UTF-16, by which other languages sort."""
    snapshot = Snapshot.from_rows([scored("\U0001f600"), scored("\uffee"), scored("z")], spec(3))
    runs = [row[0] for row in json.loads(snapshot.canonical_bytes())["rows"]]
    assert runs == ["z", "\uffee", "\U0001f600"]
    assert runs == sorted(runs, key=str.encode)


@settings(deadline=None)  # a busy machine is not a failure
@given(st.permutations(range(7)))
def test_no_order_of_arrival_changes_a_byte(order: list[int]) -> None:
    """The same accepted set, read in any order, is the same snapshot."""
    rows = [scored(f"r{n}", "fail" if n % 3 else "pass") for n in range(5)] + [
        hole("h1", "poison"),
        hole("h0", "x"),
    ]
    shuffled = Snapshot.from_rows([rows[place] for place in order], spec(7))
    assert shuffled == Snapshot.from_rows(rows, spec(7))
    assert shuffled.canonical_bytes() == Snapshot.from_rows(rows, spec(7)).canonical_bytes()


@pytest.mark.parametrize(
    "other",
    [
        scored("r0", "fail"),
        scored("r0", value="2"),
        scored("r0", epoch=2),
        scored("r0", digest="another tree"),
        scored("r1"),
        hole("r0", "poison"),
    ],
)
def test_any_other_set_has_another_name(other: RunRow) -> None:
    """Run, digest, epoch, bin and value are all in the name: none can be exchanged under it."""
    one = Snapshot.from_rows([scored("r0")], spec(1))
    assert Snapshot.from_rows([other], spec(1)).snapshot_id != one.snapshot_id
    assert Snapshot.from_rows([scored("r0")], spec(1, quorum=1)).snapshot_id != one.snapshot_id


def test_what_is_not_part_of_the_set_is_not_part_of_the_name() -> None:
    """Who ran it, how often it was tried and under which generation differ between two equal evaluations."""
    row = scored("r0")
    busy = replace(row, gen=9, attempts=4, score_attempts=3, consumer="w7", entry="99-1", length=12)
    assert Snapshot.from_rows([busy], spec(1)) == Snapshot.from_rows([row], spec(1))


def test_every_declared_bin_is_there_and_the_first_is_the_one_that_passes() -> None:
    """A bin that nothing fell into is a count of nought, not a missing key; the order is the suite's."""
    snapshot = Snapshot.from_rows([scored("r0", "right")], spec(1, bins=("right", "half", "wrong")))
    assert list(snapshot.bins.items()) == [("right", 1), ("half", 0), ("wrong", 0)]
    assert snapshot.passed == 1


@pytest.mark.parametrize("state", [RunState.QUEUED, RunState.RUNNING, RunState.SEALED, RunState.SCORING])
def test_a_run_that_has_not_ended_makes_no_snapshot(state: RunState) -> None:
    """A number over what happens to be finished is what this is there to prevent."""
    with pytest.raises(ViolationError, match=f"run r1 is {state}"):
        Snapshot.from_rows([scored("r0"), replace(scored("r1"), state=state)], spec(2))


def test_a_run_that_is_there_twice_is_not_counted_twice() -> None:
    """A reader that pages over rows may see one twice: that is an error, not a sample."""
    with pytest.raises(ViolationError, match="run r0 is there twice"):
        Snapshot.from_rows([scored("r0"), scored("r0")], spec(2))
    with pytest.raises(ViolationError, match="run r0 is there twice"):
        Snapshot.from_rows([scored("r0"), hole("r0", "poison")], spec(2))


def test_a_missing_run_or_a_run_too_many_makes_no_snapshot() -> None:
    """The denominator is what was declared, not what was found."""
    with pytest.raises(ViolationError, match="1 runs have ended, 2 were declared"):
        Snapshot.from_rows([scored("r0")], spec(2))
    with pytest.raises(ViolationError, match="2 runs have ended, 1 were declared"):
        Snapshot.from_rows([scored("r0"), scored("r1")], spec(1))


def test_a_bin_that_was_not_declared_makes_no_snapshot() -> None:
    """The bins are part of the declaration: a new one cannot be slipped in by a score."""
    with pytest.raises(ViolationError, match="'great', never declared"):
        Snapshot.from_rows([scored("r0", "great")], spec(1))
