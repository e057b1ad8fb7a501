"""`evalbus chaos` on real processes: a suite to which everything happens ends as it does when nothing happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import Told, chaos
from tests.soak import soaked
from tests.suites import write_suite

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parent.parent / "examples"


def must_hold(told: Told) -> None:
    """No violation, no stuck batch, and something was tried."""
    assert told.code == 0, told.screen
    assert told.broken == set()
    assert told.json["stuck"] == 0
    assert sum(told.json["faults"].values()) > 0
    assert told.checks["chaos.P2"][0] > 0


def test_a_suite_to_which_everything_happens_ends_as_it_does_undisturbed(tmp_path: Path) -> None:
    """All faults of a server that forgets nothing, over a model, effects, a fan-out, a workspace.

    What happened outside is what the history says: one effect a committed step, and each token that was billed.
    """
    told = chaos(
        tmp_path,
        EXAMPLES / "chaos",
        "--seed",
        7,
        "--faults",
        "all,-failover,-cluster-failover,-server-lose-tail,-server-clock",
        EVALBUS_CHAOS_RUNS="16",
    )
    must_hold(told)
    assert set(told.json) == {
        "seed", "faults", "preemptions", "batches", "stuck", "checks", "effects", "tokens", "recovery_ms", "lease_ms",
    }  # fmt: skip
    assert told.json["effects"]["committed"] == told.json["effects"]["external"] > 0
    assert told.json["tokens"]["lab"] == told.json["tokens"]["ledger"] > 0


@soaked
def test_a_server_that_forgets_its_last_moments_loses_no_run(tmp_path: Path) -> None:
    """What was granted in them is void: the generation's floor says so to whoever still holds it."""
    told = chaos(
        tmp_path, EXAMPLES / "chaos", "--seed", 5, "--faults", "server-lose-tail,kill", EVALBUS_CHAOS_RUNS="12"
    )
    must_hold(told)
    assert told.json["faults"]["server-lose-tail"] > 0
    assert told.json["tokens"]["lab"] is None or told.json["tokens"]["lab"] == told.json["tokens"]["ledger"]


@soaked
def test_a_failover_behind_sentinels_loses_no_run(tmp_path: Path) -> None:
    """The primary dies, a replica takes its place, and the roles find it."""
    told = chaos(tmp_path, EXAMPLES / "chaos", "--seed", 5, "--faults", "failover,kill", EVALBUS_CHAOS_RUNS="12")
    must_hold(told)
    assert told.json["faults"]["failover"] > 0


def test_a_failover_in_a_cluster_loses_no_run(tmp_path: Path) -> None:
    """The primary that has the batch's slot dies, its replica is elected, and the roles find it."""
    told = chaos(tmp_path, EXAMPLES / "chaos", "--seed", 5, "--faults", "cluster-failover", EVALBUS_CHAOS_RUNS="12")
    must_hold(told)
    assert told.json["faults"]["cluster-failover"] > 0
    assert told.checks["run.P12"][0] > 0, "its new server knows that it is another one"


@soaked
def test_the_shipped_example_survives_two_minutes_of_chaos(tmp_path: Path) -> None:
    """`examples/repair`, whose verdicts depend on nothing but the programs."""
    faults = "all,-failover,-cluster-failover,-server-lose-tail,-server-clock"
    told = chaos(tmp_path, EXAMPLES / "repair", "--seed", 7, "--faults", faults)
    must_hold(told)
    assert told.checks["chaos.P2"] == (46, 0)


@soaked
def test_a_violation_is_told_with_its_seed_and_the_history_that_shows_it(tmp_path: Path) -> None:
    """A solver that answers otherwise when it is asked again is none that can be compared; it is found out as such."""
    agent = (
        "import asyncio\n\n\nasync def solve(case, run):\n    await asyncio.sleep(0.6)\n"
        '    return "1" if run.gen == 1 else "another"\n'
    )
    toml = (
        'cases = "cases.jsonl"\nlease = "1s"\nquorum = 1\n[solver]\npython = "agent.py:solve"\n'
        '[scorer]\nkind = "exact"\n'
    )
    cases = "".join(f'{{"id": "c{n}", "input": "1", "target": "1"}}\n' for n in range(30))
    suite = write_suite(tmp_path / "suite", toml, cases_DOT_jsonl=cases, agent_DOT_py=agent)
    told = chaos(tmp_path, suite, "--seed", 3, "--faults", "kill", "--workers", 2)
    assert told.code == 5
    assert told.broken == {"chaos.P2"}
    first, short, last = told.screen.strip().splitlines()[-3:]
    assert first.startswith("evalbus: seed 3: chaos.P2: ")
    assert short == "evalbus:   no shorter history shows it than the whole"
    assert last.startswith("evalbus: seed 3: 1 property broken")
    kept = Path(last.rpartition(" in ")[2])
    assert kept.is_relative_to(tmp_path / "home" / "chaos")
    assert Path(first.rpartition(" in ")[2]).parent == kept
    assert {file.name for file in kept.glob("*.jsonl")} == {"undisturbed.jsonl", "chaos-3-1.jsonl"}


def test_the_endpoint_of_a_suite_that_asks_none_cannot_fail(tmp_path: Path) -> None:
    """One line, before anything is started."""
    told = chaos(tmp_path, write_suite(tmp_path / "suite"), "--faults", "endpoint")
    assert told.code == 2
    assert told.screen.count("\n") == 1
    assert "does not talk to the lab" in told.screen
