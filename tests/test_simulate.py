"""One schedule at a time: what is repeated, what strikes, who reaches whom, and what is told of it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bus.errors import InputError
from tests.simulated import quiet
from workers.simulating import findings
from workers.simulating.clock import EPOCH, VirtualLoop
from workers.simulating.faults import KINDS, Dice, Fault, Listed, chosen
from workers.simulating.findings import find, undisturbed
from workers.simulating.play import Crew, Played, play
from workers.simulating.schedule import Schedule, drawn, read_schedule, settings_of, write_schedule
from workers.simulating.setting import BUILT_IN, Setting, built_in

SETTINGS = settings_of(None)
EVENTFUL = 5
"""A seed whose schedule has several faults, on a suite with tools."""


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """What the roles log is about a world that is not there."""
    with quiet():
        yield


def digest(played: Played) -> str:
    """Of the whole history."""
    return hashlib.sha256(b"".join(played.lines)).hexdigest()


def played_with(setting: Setting, *faults: Fault, crew: Crew | None = None) -> Played:
    """These faults and no others."""
    return play(setting, "a test", Listed(faults), crew or Crew())


def leases(played: Played) -> int:
    """How many were granted to workers."""
    return sum(b'"fence":"transcript","op":"lease","verb":"commit"' in line for line in played.lines)


# --- the clock --------------------------------------------------------------------------------------------


def test_an_hour_that_somebody_waits_for_takes_no_time() -> None:
    """And is an hour on the loop's clock."""
    loop = VirtualLoop()
    began = time.monotonic()
    loop.run(asyncio.sleep(3600))
    assert loop.time() == pytest.approx(EPOCH + 3600)
    assert time.monotonic() - began < 30
    loop.close()


# --- repeating --------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_history_byte_for_byte() -> None:
    """Faults included: whatever is drawn comes from the seed, and from nothing else."""
    first, second = (drawn(SETTINGS, EVENTFUL).played() for _ in range(2))
    assert first.faults == second.faults
    assert first.faults
    assert digest(first) == digest(second)


def test_the_order_of_hashed_texts_changes_nothing() -> None:
    """Another process has another order of its sets: no decision may hang on one."""
    code = (
        "import hashlib\nfrom tests.simulated import quiet\n"
        "from workers.simulating.schedule import drawn, settings_of\n"
        f"with quiet():\n    played = drawn(settings_of(None), {EVENTFUL}).played()\n"
        "print(hashlib.sha256(b''.join(played.lines)).hexdigest())\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True, text=True, check=True, timeout=120, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    ]  # fmt: skip
    assert said[0] == said[1] == digest(drawn(SETTINGS, EVENTFUL).played())


def test_the_faults_that_struck_are_all_that_it_takes_to_repeat_a_schedule() -> None:
    """A list of them stands for the dice."""
    schedule = drawn(SETTINGS, EVENTFUL)
    played = schedule.played()
    assert digest(schedule.of(played.faults).played()) == digest(played)


def test_a_schedule_that_was_written_to_a_file_is_repeated_from_it(tmp_path: Path) -> None:
    """Its suite, its processes and its faults, whatever the dice would draw by then."""
    schedule = drawn(SETTINGS, EVENTFUL)
    whole = schedule.of(schedule.played().faults)
    write_schedule(whole, "run.P1: …", None, tmp_path / "found.json")
    again = read_schedule(tmp_path / "found.json")
    assert again == replace(whole, kinds=again.kinds)
    assert digest(again.played()) == digest(whole.played())


def test_a_schedule_of_another_state_of_its_suite_is_refused(tmp_path: Path) -> None:
    """It would be another schedule."""
    file = tmp_path / "found.json"
    schedule = drawn(SETTINGS, EVENTFUL)
    write_schedule(schedule.of(()), "run.P1: …", None, file)
    file.write_text(file.read_text().replace(schedule.setting.suite.digest, "0" * 64))
    with pytest.raises(InputError, match="would not be repeated"):
        read_schedule(file)


@pytest.mark.parametrize("text", ["", "[]", '{"format": "evalbus-history", "version": 1}'])
def test_what_is_no_schedule_is_refused_in_a_line(tmp_path: Path, text: str) -> None:
    """Whatever it is."""
    (tmp_path / "no.json").write_text(text)
    with pytest.raises(InputError, match="is no schedule"):
        read_schedule(tmp_path / "no.json")


# --- nothing goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_undisturbed_batch_closes_with_every_property_held(name: str) -> None:
    """Each of our own suites, with its planes: effects and tokens are the endpoint's own figures."""
    setting = built_in(name)
    played = played_with(setting)
    finding = find(setting, played)
    assert finding.violations == ()
    assert finding.checked.state == "closed"
    assert len(finding.checked.scored) == setting.suite.intended
    assert finding.checked.effects.external == finding.checked.effects.committed
    asks = setting.suite.model is not None or setting.suite.scorer.kind == "model"
    assert finding.checked.tokens.lab == (finding.checked.tokens.ledger if asks else None)


# --- faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_strikes_and_breaks_nothing(kind: str) -> None:
    """On the suite that has every plane, or a judge, by itself and as often as the dice say."""
    setting, struck = built_in("judged" if kind.startswith("judge-") else "all"), 0
    for seed in range(40):
        schedule = Schedule(setting, seed, Crew(workers=2), (kind,))
        played, finding = schedule.found()
        assert finding.violations == (), [str(fault) for fault in played.faults]
        struck += len(played.faults)
        if struck >= 2:
            return
    assert struck, "it never struck"


def test_a_process_that_died_after_its_claim_loses_the_run_to_the_next_holder() -> None:
    """It was applied and not heard: the lease is missed, and the run is claimed under the next generation."""
    setting = built_in("plain")
    quietly = played_with(setting)
    killed = played_with(setting, Fault("worker-1", "claim", 1, "crash-after", 2.0))
    assert (leases(quietly), leases(killed)) == (5, 6)
    assert find(setting, killed).checked.preemptions == 1


def test_nothing_of_a_dead_process_reaches_the_bus_any_more() -> None:
    """A worker that is told to stop hands its lease back; one that dies does not, whatever its code does on its way."""
    setting = built_in("plain")
    told = {
        kind: played_with(setting, Fault("worker-1", "append", 1, kind, 0.5), crew=Crew(workers=1))
        for kind in ("stop", "crash-before")
    }
    handed_back = {kind: find(setting, played).checked.leases.handed_back for kind, played in told.items()}
    assert handed_back["stop"] >= 1
    assert handed_back["crash-before"] == 0


def test_a_stalled_process_goes_on_as_a_zombie_and_is_refused() -> None:
    """Its run has another holder by then."""
    setting = built_in("plain")
    played = played_with(setting, Fault("worker-1", "append", 1, "stall-before", 4.0))
    finding = find(setting, played)
    assert finding.violations == ()
    assert finding.checked.preemptions >= 1
    assert any(b'"verb":"reject"' in line for line in played.lines)


def test_a_lost_answer_is_asked_for_again_and_the_step_is_applied_once() -> None:
    """The copy of a seal is a duplicate."""
    played = played_with(built_in("plain"), Fault("worker-1", "seal", 1, "lost", 0.1))
    assert sum(b'"fence":"run","op":"seal","verb":"duplicate"' in line for line in played.lines) == 1


def test_the_dice_stop_where_they_are_told_to() -> None:
    """Behind the horizon nothing goes wrong: what follows is the way to the end."""
    dice = Dice("a seed", 1.0)
    dice.end()
    assert not any(dice.strike("worker-1", "claim", number, "step") for number in range(1, 1_000))


def test_faults_are_chosen_by_name_or_by_what_they_begin_with() -> None:
    """`crash-` is both of them."""
    assert chosen("crash-, lost") == ("crash-before", "crash-after", "lost")
    assert chosen(None) == tuple(KINDS)
    assert chosen("") == ()
    with pytest.raises(InputError, match="no fault 'earthquake'"):
        chosen("earthquake")


# --- machines ---------------------------------------------------------------------------------------------


def handed_back(played: Played) -> set[tuple[str, str]]:
    """By whom, and for which machine's fault."""
    holders: dict[str, str] = {}
    found = set()
    for line in map(json.loads, played.lines[1:-1]):
        envelope = line.get("envelope") or {}
        if "consumer" in envelope and "lease_id" in envelope:
            holders[envelope["lease_id"]] = envelope["consumer"]
        if "machine" in envelope:
            found.add((holders[envelope["lease_id"]], envelope["machine"]))
    return found


def test_processes_on_one_machine_break_together() -> None:
    """By default each has one to itself."""
    faults = Fault("worker-1", "attempt", 1, "unfit-unseen", 4.0), Fault("scorer-1", "verdict", 1, "unfit-unseen", 4.0)
    crew = Crew(workers=2, scorers=1)
    apart, beside = (played_with(built_in("plain"), *faults, crew=replace(crew, together=n)) for n in (1, 2))
    assert handed_back(apart) == {("worker-1", "worker-1"), ("scorer-1", "scorer-1")}
    assert handed_back(beside) >= {("worker-1", "machine-1"), ("worker-2", "machine-1")}


def test_machines_break_beside_whatever_else_goes_wrong() -> None:
    """Of a seed in which none breaks, no fault is another than before there were such."""
    dice, alone = (
        Dice("seed 1", 1.0),
        Dice("seed 1", 1.0, tuple(kind for kind in KINDS if not kind.startswith("unfit"))),
    )
    for number in range(1, 400):
        dice.strike("worker-1", "attempt", number, "work")
        struck = [one.strike("worker-1", "claim", number, "step") for one in (dice, alone)]
        assert struck[0] == struck[1]
    assert {fault.kind.partition("-")[0] for fault in dice.drawn} > {"unfit"}


@pytest.mark.parametrize("kind", ["unfit-unseen", "unfit-run"])
def test_a_run_that_is_given_up_is_a_violation_while_another_machine_could_do_it(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """One machine's word is to be enough here. What no machine could do may be given up."""
    undisturbed(built_in("plain"))
    monkeypatch.setattr("bus.memory.hand_backs.UNFIT_MACHINES", 1)
    monkeypatch.setattr("workers.simulating.process._FOR_SURE", 0.01)
    played = played_with(built_in("plain"), Fault("worker-1", "attempt", 2, kind, 3.0))
    assert played.given_up
    broken = {one.id for one in find(built_in("plain"), played).violations}
    assert broken == {"run.P14"} | ({"machines.P1"} if kind == "unfit-unseen" else set())


# --- what is told -----------------------------------------------------------------------------------------


def test_a_batch_that_does_not_end_is_a_violation() -> None:
    """Nobody works on it, and its patience runs out."""
    setting = built_in("plain")
    played = played_with(setting, crew=Crew(workers=0))
    assert [one.id for one in find(setting, played).violations] == ["end.P1"]


def test_a_run_that_is_scored_otherwise_than_undisturbed_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the history says of itself."""
    setting = built_in("plain")
    expected = undisturbed(setting)
    other = replace(expected, scored={**expected.scored, "case-1#1": "fail"})
    monkeypatch.setattr(findings, "undisturbed", lambda _setting: other)
    assert [one.id for one in find(setting, played_with(setting)).violations] == ["outcome.P1"]


def test_a_role_that_breaks_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer leaves the entry to somebody else, and only logs what happened."""

    def broken(*_: object) -> None:
        raise KeyError("nobody foresaw it")

    setting = built_in("plain")
    expected = undisturbed(setting)
    monkeypatch.setattr(findings, "undisturbed", lambda _setting: expected)
    monkeypatch.setattr("workers.scorer.head_of", broken)
    found = find(setting, played_with(setting))
    assert "roles.P1" in [one.id for one in found.violations]


def test_effects_that_nobody_licensed_are_found_in_the_books() -> None:
    """The endpoint counts by itself."""
    setting = built_in("tools")
    played = played_with(setting)
    assert played.books is not None
    effects = dict(played.books.effects or {})
    assert effects
    twice = replace(played.books, effects={key: times + 1 for key, times in effects.items()})
    ids = [one.id for one in find(setting, replace(played, books=twice)).violations]
    assert ids == ["effects.P4", "effects.P7"]


def test_a_simulated_history_has_a_call_s_arguments_as_objects_like_a_server_s() -> None:
    """Whoever reads exports need not know which bus wrote them."""
    lines = [json.loads(line) for line in played_with(built_in("tools")).lines[1:-1]]
    told = [line for line in lines if line["fence"] == "outbox" and line["op"] in ("put", "claim")]
    assert told
    for line in told:
        given = line["args"] if line["op"] == "put" else line["answer"]
        assert isinstance(given["args"], dict), line
        assert isinstance(line["answer"].get("args", {}), dict), line
