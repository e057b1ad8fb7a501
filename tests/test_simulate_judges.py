"""Models that judge, and batches on the shadow plane, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus.types import Plane
from tests.simulated import quiet
from tests.suites import write_suite
from workers.judging import reading
from workers.simulating.faults import Fault, Listed
from workers.simulating.findings import Finding, find, undisturbed
from workers.simulating.many import Search, played_range
from workers.simulating.mutants import Mutant
from workers.simulating.play import Crew, Played, play
from workers.simulating.schedule import Schedule, settings_of
from workers.simulating.setting import Setting, built_in

JUDGED = """\
cases = "cases.jsonl"
lease = "2s"
quorum = "100%"
bins = ["good", "fair", "bad"]
[solver]
command = ["cat"]
[scorer]
kind = "model"
prompt = "judge.txt"
grades = { A = "good", B = "fair", C = "bad" }
[scorer.model]
base_url = "http://127.0.0.1:9/v1"
name = "none"
slots = 2
[judge]
policy = "replay"
replay_budget = 1
"""
"""A suite whose judge is a model; it is not there."""


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    with quiet():
        yield


def played_with(setting: Setting, *faults: Fault) -> Played:
    """These faults and no others, one scorer."""
    return play(setting, "a test", Listed(faults), Crew(workers=1))


def _broken(finding: Finding) -> set[str]:
    return {one.id for one in finding.violations}


def examined(finding: Finding) -> dict[str, int]:
    """By the property's name."""
    return {check.property.partition(":")[0]: check.examined for check in finding.checks}


def steps(played: Played, command: str) -> list[dict[str, Any]]:
    """The first part of each such step."""
    lines = [json.loads(line) for line in played.lines[1:-1]]
    return [line for line in lines if (line["fence"], line["op"]) == ("run", command)]


# --- judges -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["judged", "rejudged"])
def test_a_judge_gives_each_run_its_bin_and_all_its_tokens_are_in_the_ledger(name: str) -> None:
    """Each run is asked about once, and what the judge was billed is what the books say."""
    setting = built_in(name)
    played = played_with(setting)
    finding = find(setting, played)
    assert finding.violations == ()
    assert set(finding.checked.scored.values()) == {"pass", "fail"}
    assert finding.checked.tokens.lab == finding.checked.tokens.ledger > 0
    assert examined(finding)["judge.P1"] == setting.suite.intended


def test_an_answer_without_a_grade_is_asked_for_again() -> None:
    """And the tokens of the first stand beside those of the second."""
    setting = built_in("rejudged")
    quietly, played = played_with(setting), played_with(setting, Fault("scorer-1", "judge", 1, "judge-vague"))
    finding = find(setting, played)
    assert finding.violations == ()
    assert finding.checked.holes == {}
    assert played.books is not None and quietly.books is not None
    assert played.books.tokens > quietly.books.tokens  # type: ignore[operator]  # both were compared


def test_a_judge_that_never_names_a_grade_makes_a_hole_of_that_name() -> None:
    """No fail, and no pass."""
    setting = built_in("rejudged")
    often = 3 * (1 + setting.suite.scorer.model.retries)
    faults = [Fault("scorer-1", "judge", number, "judge-vague") for number in range(1, often + 1)]
    finding = find(setting, played_with(setting, *faults))
    assert finding.violations == ()
    assert finding.checked.holes.keys() == {"judge_unparsed"}


def test_another_judges_verdict_is_no_score_and_under_replay_it_is_asked_for_anew() -> None:
    """The planner binds the run again; the next answer is the right judge's."""
    setting = built_in("rejudged")
    finding = find(setting, played_with(setting, Fault("scorer-1", "judge", 1, "judge-other")))
    assert finding.violations == ()
    assert finding.checked.holes == {}
    assert examined(finding)["judge.P4"] == 1
    assert examined(finding)["judge.P6"] == 1


def test_under_review_another_judges_verdict_waits_and_ends_unreviewed() -> None:
    """Nobody comes in a simulation."""
    setting = built_in("judged")
    finding = find(setting, played_with(setting, Fault("scorer-1", "judge", 1, "judge-other")))
    assert finding.violations == ()
    assert finding.checked.holes == {"unreviewed": 1}


def test_a_fence_that_asks_nobody_who_judged_is_found() -> None:
    """The pool is trusted to have asked the judge that is bound."""
    setting = built_in("rejudged")
    undisturbed(setting)
    source, mutant = Listed([Fault("scorer-1", "judge", 1, "judge-other")]), Mutant("judge", "sticky_routing")
    assert "judge.P1" in _broken(find(setting, play(setting, "a test", source, Crew(), mutant)))


@pytest.mark.parametrize("kind", ["crash-before", "crash-after", "gone-after", "server-restart"])
@pytest.mark.parametrize("step", ["open_judge", "bind_judge", "score"])
def test_a_scorer_that_loses_its_place_in_the_middle_of_a_judgement_is_followed_by_another(
    step: str, kind: str
) -> None:
    """Who comes next asks again, and what both spent is in the books."""
    setting = built_in("rejudged")
    finding = find(setting, played_with(setting, Fault("scorer-1", step, 1, kind, 0.3)))
    assert finding.violations == ()
    assert len(finding.checked.scored) == setting.suite.intended


def test_grades_are_searched_by_the_judges_own_code_and_in_a_process_again_afterwards() -> None:
    """What is replaced for a simulation is put back."""
    before = reading.run_limited  # type: ignore[attr-defined]  # as that module has it
    played_with(built_in("rejudged"))
    assert reading.run_limited is before  # type: ignore[attr-defined]


def test_a_users_judge_is_simulated_with_its_policy_and_bins(tmp_path: Path) -> None:
    """Neither its question nor its model has to be there."""
    suite = write_suite(tmp_path / "suite", JUDGED, judge_DOT_txt="{answer}")
    [setting] = settings_of(suite)
    assert setting.suite.scorer.kind == "model"
    assert setting.suite.judging.policy == "replay"
    tally = played_range(Search(suite), range(6))
    assert tally.found == []
    assert tally.tokens_lab == tally.tokens_ledger > 0


# --- the shadow plane -------------------------------------------------------------------------------------


def test_a_shadow_batch_stays_within_its_capacity_and_its_budget() -> None:
    """Runs and calls have their places in it together, and one is never a run's."""
    setting = built_in("shadow")
    assert setting.plane is Plane.SHADOW
    played = played_with(setting)
    finding = find(setting, played)
    assert finding.violations == ()
    assert json.loads(played.lines[0])["plane"] == "shadow"
    assert finding.checked.plane == "shadow"
    assert examined(finding)["plane.P4"] > setting.suite.intended
    assert finding.checked.effects.external == finding.checked.effects.committed > 0


def test_a_shadow_plane_without_a_bound_is_found() -> None:
    """Runs and calls that a capacity would have kept waiting."""
    setting = built_in("shadow")
    undisturbed(setting)
    for seed in range(40):
        _, finding = Schedule(setting, seed, Crew(workers=3), (), None, Mutant("plane", "boundless")).found()
        if "plane.P4" in _broken(finding):
            return
    pytest.fail("it survived")


def test_what_a_live_process_presents_to_a_shadow_batch_is_refused_as_crossed() -> None:
    """The other way round than on a live one."""
    setting, struck = built_in("shadow"), 0
    for seed in range(20):
        _, finding = Schedule(setting, seed, Crew(workers=2), ("crossed",)).found()
        assert finding.violations == ()
        struck += examined(finding)["plane.P6"]
    assert struck
