"""The rehearsals of `examples/rehearsal`: each holds, by the very command that a user runs, and each can fail."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bus.port import Counters, IntentRow, IntentState
from bus.values import BatchStatus
from workers.lab.counts import KeyCounts

Judges = Callable[[str], Callable[..., list[str]]]

EXAMPLE = Path(__file__).parent.parent / "examples" / "rehearsal"


async def rehearsed(what: str, *options: str) -> list[str]:
    """The lines of a rehearsal that holds."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, EXAMPLE / "rehearse.py", what, *options,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    assert process.returncode == 0, out.decode()
    lines = [line.strip() for line in out.decode().splitlines()]
    assert lines[-1] == "holds"
    return lines


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
@pytest.mark.parametrize(
    ("what", "size"),
    [("commits", 1), ("billing", 200), ("budget", 60), ("fanout", 8), ("remote", 4), ("hang", 2), ("canary", 1)],
)
async def test_what_is_promised_holds_on_a_bad_day(what: str, size: int) -> None:
    """The command counts for itself, and finds it a violation when nothing went wrong: see its README."""
    await rehearsed(what, "--size", str(size))


# --- each can fail ---------------------------------------------------------------------------------------------


@pytest.fixture
def judges(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judges]:
    """The rehearsals' modules by their names."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield lambda name: importlib.import_module(f"rehearsals.{name}").judge
    for name in set(sys.modules) - before:  # names such as `place` are the example's own
        if getattr(sys.modules[name], "__file__", None) and EXAMPLE in Path(str(sys.modules[name].__file__)).parents:
            del sys.modules[name]


def intent(state: IntentState) -> IntentRow:
    """A step's intent as it ended."""
    return IntentRow("a#1~0.1.0", state, 1, "book", "{}", None)


def at_lab(**counts: int) -> dict[str, KeyCounts]:
    """What the lab did under its key."""
    return {"live/live:0123:a#1~0.1.0": KeyCounts(**counts)}


@pytest.mark.parametrize(
    ("state", "counts", "holds"),
    [
        ("committed", {"commits": 1}, True),
        ("committed", {"commits": 2}, False),
        ("committed", {}, False),
        ("committed", {"commits": 1, "undone": 1}, False),
        ("compensated", {"commits": 1, "undone": 1}, True),
        ("compensated", {}, True),
        ("compensated", {"commits": 1}, False),
        ("compensated", {"commits": 2, "undone": 2}, False),
        ("failed", {}, True),
        ("failed", {"commits": 1}, False),
        ("stuck", {"commits": 1}, True),
        ("stuck", {"commits": 2}, False),
        ("awaiting_ack", {}, False),
    ],
)
def test_an_effect_too_many_or_too_few_is_found(
    judges: Judges, state: str, counts: dict[str, int], holds: bool
) -> None:
    """A second ticket, none where one is said to be, one that stands though it was taken back, an open end."""
    assert (judges("commits")([intent(IntentState(state))], at_lab(**counts)) == []) is holds


def test_an_effect_that_nobody_asked_for_is_found(judges: Judges) -> None:
    """A key at the lab, and no step of the batch that has it."""
    [said] = judges("commits")([], at_lab(commits=1))
    assert "nobody knows of a#1~0.1.0" in said


def figures(**told: int) -> Counters:
    """Counters of a batch that has spent 90 tokens."""
    own = {"spent": 90} | told
    return Counters(
        status=BatchStatus.CLOSED, intended=1, quorum=1, cursor=1, running=0, sealed=0, scoring=0, scored=1,
        holes=0, in_flight=0, bins={}, hole_reasons={}, refusals={}, review=0, snapshot_id="s", **own,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("told", "violations"), [({}, 0), ({"spent": 89}, 1), ({"estimated": 1}, 1), ({"reserved": 1, "spent": 80}, 2)]
)
def test_a_token_that_is_missing_in_the_books_is_found(judges: Judges, told: dict[str, int], violations: int) -> None:
    """One that was billed and not spent, a guess that happens to be right, a reservation that nobody will settle."""
    bill = importlib.import_module("rehearsals.billing").Bill(billed=90, requests=3, cuts={})
    assert len(judges("billing")(bill, figures(**told))) == violations


@pytest.mark.parametrize(("billed", "spent", "violations"), [(100, 100, 0), (101, 101, 2), (101, 100, 2), (99, 98, 1)])
def test_a_budget_that_is_passed_is_found(judges: Judges, billed: int, spent: int, violations: int) -> None:
    """At the endpoint or in the ledger, by one token."""
    assert len(judges("budget")(100, billed, spent)) == violations


@pytest.mark.parametrize(
    ("commits", "joins", "late", "violations"),
    [
        (1, 1, "duplicate", 0),
        (2, 1, "duplicate", 3),
        (1, 2, "duplicate", 1),
        (1, 1, "commit", 1),
        (1, 0, "duplicate", 1),
    ],
)
def test_a_fan_out_that_spends_twice_is_found(
    judges: Judges, commits: int, joins: int, late: str, violations: int
) -> None:
    """A second ticket for each key, a second join, a late outcome that was taken for a first, no join at all."""
    keys = {f"k{number}": KeyCounts(commits=commits) for number in range(3)}
    joined = {"a#1": joins} if joins else {}
    assert len(judges("fanout")(1, keys, joined, [late])) == violations


def test_a_program_that_passes_in_one_place_only_is_found(judges: Judges) -> None:
    """Another verdict, and a run that has none."""
    judge = judges("remote")
    assert judge({"a#1": "pass", "b#1": "fail"}, {"a#1": "pass", "b#1": "fail"}) == []
    assert len(judge({"a#1": "pass", "b#1": "fail"}, {"a#1": "fail"})) == 2


def test_a_key_is_found_in_whatever_it_is_wrapped(judges: Judges, tmp_path: Path) -> None:
    """Plain, escaped as often as one likes, and in a file that is compressed."""
    judges("remote")  # makes the example's modules known
    canary = importlib.import_module("rehearsals.canary")
    key = f'sk"canary\\{"0123456789abcdef" * 2}'
    (tmp_path / "plain.log").write_text(json.dumps(json.dumps(key)))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(key.encode()))
    (tmp_path / "clean").write_text("nothing")
    found = canary.search(dict(canary.files(tmp_path)), key)
    assert found == ["packed.gz, unpacked", "plain.log"]
