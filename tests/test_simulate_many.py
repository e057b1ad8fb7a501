"""Very many schedules: the sums, over processes and alone; and the thousand of each build."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.suites import write_suite
from workers.simulating.many import Search, Tally, played_range, search
from workers.simulating.mutants import Mutant

FULL = """\
cases = "cases.jsonl"
trials = 2
bound = 3
lease = "2s"
concurrency = 2
quorum = "100%"
[solver]
command = ["cat"]
[workspace]
[model]
base_url = "http://127.0.0.1:9/v1"
name = "none"
slots = 2
[tools.book]
http = "http://127.0.0.1:9/book"
effects = "outside"
inverse = "unbook"
timeout = "1s"
[tools.unbook]
http = "http://127.0.0.1:9/unbook"
effects = "outside"
timeout = "1s"
[scorer]
kind = "exact"
"""
"""All planes; none of what it names is there."""


def _nothing(_tally: Tally) -> None:
    pass


def test_seeds_come_to_the_same_over_processes_and_alone() -> None:
    """Whoever plays a seed plays the same schedule."""
    alone, spread = (search(Search(), range(1, 31), _nothing, processes) for processes in (1, 2))
    spread.late.sort()
    alone.late.sort()
    assert spread == alone
    assert alone.schedules == 30


def test_the_first_violation_ends_the_search_and_comes_with_its_shortest_schedule() -> None:
    """A fence without its check, found in a process of its own and told here."""
    hunted = Search(mutant=Mutant("ledger", "step_counter"))
    tally = search(hunted, range(1, 200), _nothing, 2)
    assert tally.found
    assert tally.schedules < 199
    first = tally.found[0]
    assert first.violation.id == "ledger.S1"
    assert first.schedule.faults == ()  # it breaks without any
    assert tally.as_json(1)["found"][0]["property"].startswith("ledger.S1: ")


def test_a_users_suite_is_simulated_with_what_it_declares_and_none_of_its_code(tmp_path: Path) -> None:
    """Its model and its tools are not there, and need not be."""
    suite = write_suite(tmp_path / "suite", FULL)
    tally = played_range(Search(suite), range(6))
    assert tally.found == []
    assert (tally.schedules, tally.runs) == (6, 24)
    assert tally.committed == tally.external > 0


@pytest.mark.process
def test_a_thousand_seeded_schedules_break_nothing() -> None:
    """Every fence, every fault, on each build. What was preempted is counted from the histories."""
    tally = search(Search(replayed=False), range(100_000, 101_000), _nothing)
    assert tally.found == []
    assert (tally.schedules, tally.stuck) == (1_000, 0)
    assert tally.preemptions > 500
    assert tally.committed == tally.external > 500
    assert tally.tokens_lab == tally.tokens_ledger > 50_000
    assert sum(tally.violations.values()) == 0
