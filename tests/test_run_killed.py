"""`evalbus run` while its processes are killed, stopped and interrupted: the accepted set is that of a quiet run."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bus.port import Group, RunRow, RunState
from tests.fleet import Command, Process, Stage, Watch, case, commits, eventually, read_export
from workers.processes.role_options import Role

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]

WAVES = 3
CASES = [
    case(f"w{wave}.{kind}.{number}", target="1" if number else "2", **{kind: f"{kind}-{wave}"})
    for wave in range(WAVES)
    for kind in ("score_gate", "gate")
    for number in range(2)
]
"""In each wave two runs wait in their scorer and two in their solver; of either two the first is wrong."""
SMALL = ("--workers", 1, "--scorers", 1, "--batch", "b", "--json", "out.json")
SAME = " --workers 1 --scorers 1 --json out.json"
LARGER = ("--workers", 2, *SMALL[2:])


def open_all(stage: Stage) -> None:
    """Every gate of `CASES`."""
    for wave in range(WAVES):
        open_wave(stage, wave)


def open_wave(stage: Stage, wave: int) -> None:
    """The gates of one wave."""
    for kind in ("gate", "score_gate"):
        stage.open_gate(f"{kind}-{wave}")


def result_of(stage: Stage) -> dict[str, Any]:
    """What `--json` wrote."""
    found: dict[str, Any] = json.loads((stage.root / "out.json").read_text())
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `CASES` come to when nothing happens."""
    with Stage.opened(tmp_path_factory.mktemp("undisturbed")) as stage:
        open_all(stage)
        assert stage.run("run", stage.suite(CASES, concurrency=2), *SMALL).code == 0
        return result_of(stage)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own, with a blank in its name; whatever it starts there must be gone at its end."""
    with Stage.opened(tmp_path / "a place") as one:
        yield one


async def in_hand(batch: Watch, running: int, scoring: int) -> list[RunRow]:
    """Wait until so many runs are in workers' and in scorers' hands."""

    async def look() -> list[RunRow]:
        workers, scorers = await batch.held(RunState.RUNNING, running), await batch.held(RunState.SCORING, scoring)
        return workers + scorers if workers and scorers else []

    return await eventually(look, f"{running} runs to run and {scoring} to be scored")


async def replaced(stage: Stage, killed: Sequence[Process]) -> None:
    """Wait until the starter has started each of them again."""
    names = {one.options.name for one in killed if one.options}
    dead = {one.pid for one in killed}

    async def look() -> bool:
        return names <= {one.options.name for one in stage.roles() if one.options and one.pid not in dead}

    await eventually(look, f"{names} to be started again")


async def drained(stage: Stage) -> bool:
    """Nothing of the stage is alive."""
    return not stage.processes()


async def check_scored_once(stage: Stage, runs: dict[str, str]) -> None:
    """In the export every run of the result has exactly one accepted score, and nobody else has any."""
    assert (await stage.call("export", "b", "b.jsonl")).code == 0
    scores = Counter(score["run"] for score in commits(read_export(stage.root / "b.jsonl"), "histogram.score"))
    assert scores == Counter(dict.fromkeys(runs, 1))


# --- killed -----------------------------------------------------------------------------------------------


async def test_workers_a_scorer_and_the_planner_are_killed_over_and_over_and_every_run_is_scored_once(
    stage: Stage, undisturbed: dict[str, Any]
) -> None:
    """Killed in the middle of solving and scoring, three times; what they held goes to who comes next.

    A result that was counted twice, or lost, would show in `runs`; a second score of a run in the export.
    """
    command = stage.start("run", stage.suite(CASES, concurrency=2), *LARGER)
    async with stage.watch("b") as batch:
        for wave in range(WAVES):
            await in_hand(batch, 2, 1)
            doomed = await stage.crew(4)
            assert [one.options.role for one in doomed if one.options] == ["planner", "scorer", "worker", "worker"]
            for one in doomed:
                one.signal(signal.SIGKILL)
            await replaced(stage, doomed)
            open_wave(stage, wave)
        done = await command.end()
    assert done.code == 0, done.err
    assert "ended (signal SIGKILL), started again" in done.err
    result = result_of(stage)
    assert (result["state"], result["runs"], result["holes"]) == ("closed", undisturbed["runs"], {})
    await check_scored_once(stage, undisturbed["runs"])


async def test_the_embedded_server_is_killed_in_the_middle_and_the_run_goes_on(
    stage: Stage, undisturbed: dict[str, Any]
) -> None:
    """Whoever notices first starts it again on its data; leases, pending lists and history are all there."""
    command = stage.start("run", stage.suite(CASES, concurrency=2), *SMALL)
    async with stage.watch("b") as batch:
        await in_hand(batch, 2, 1)
        killed = stage.server()
        killed.signal(signal.SIGKILL)
        open_all(stage)
        done = await command.end()
        assert stage.server().pid != killed.pid
    assert done.code == 0, done.err
    assert result_of(stage)["runs"] == undisturbed["runs"]
    await check_scored_once(stage, undisturbed["runs"])


async def test_a_case_that_kills_its_worker_becomes_poison_after_five_deliveries_and_its_neighbours_do_not(
    stage: Stage,
) -> None:
    """Its first death takes three neighbours along. From then on it dies alone, so nothing is counted against them.

    The rest of the batch closes; its gate allows no hole, and says so: exit 1.
    """
    cases = [case("bad", solver="dies"), *(case(f"good{number}", gate="go") for number in range(3)), case("later")]
    suite = stage.suite(cases, concurrency=4, gate="max_holes = 0")
    command = stage.start("run", suite, *SMALL, env={"EVALBUS_LOG": "error"})  # which hides nothing from the starter
    async with stage.watch("b") as batch:

        async def second_life() -> bool:
            row = await batch.row("bad#1")
            return row is not None and row.gen >= 2

        await eventually(second_life, "the worker to die, and the case to be taken again")
    stage.open_gate("go")
    assert (await command.end()).code == 1
    result = result_of(stage)
    assert (result["state"], result["holes"]) == ("closed", {"poison": 1})
    assert result["gate"] == {"passed": False, "rule": "holes <= 0"}
    assert result["runs"] == {"good0#1": "pass", "good1#1": "pass", "good2#1": "pass", "later#1": "pass"}
    async with stage.watch("b") as batch:
        claims = await batch.parts("run.claim", "bad#1")
        assert [part.verb for part in claims if part.fence == "transcript" and part.op == "lease"] == ["commit"] * 5


@pytest.mark.parametrize("code", [0, 2, 4])
async def test_an_exit_code_of_the_suites_code_says_nothing_about_the_batch(stage: Stage, code: int) -> None:
    """`os._exit` in a solver or scorer: 0 is not the batch's end, 2 and 4 are no refusal; a death is a death."""
    cases = [case("solver", solver=f"exits {code}"), case("scorer", scorer=f"exits {code}"), case("good")]
    done = await stage.call("run", stage.suite(cases, max_deliveries=1, quorum=1), *SMALL)
    assert done.code == 0, done.err
    assert f"ended (exit {code}), started again" in done.err
    result = result_of(stage)
    assert (result["state"], result["holes"]) == ("closed", {"judge_failed": 1, "poison": 1})
    assert result["runs"] == {"good#1": "pass"}


@pytest.mark.parametrize(
    ("role", "limits", "hole", "told"),
    [
        (
            "solver",
            {"timeout": "1s", "lease": "500ms", "max_deliveries": 2},
            "poison",
            r"its solver blocked the event loop for over 0\.5 s at agent\.py:",
        ),
        ("scorer", {"scorer_timeout": "100ms", "lease": "2s", "max_deliveries": 1}, "judge_failed", ".+"),
    ],
    ids=["solver", "scorer"],
)
async def test_a_case_that_blocks_its_workers_event_loop_becomes_poison(
    stage: Stage, role: str, limits: dict[str, Any], hole: str, told: str
) -> None:
    """No beat leaves the process, no cancellation arrives: it would stand so for ever. It ends itself, and says where.

    A scorer likewise. Nothing else is in the batch: on a busy machine its neighbours would not keep such short limits.
    """
    suite = stage.suite([case("c", **{role: "blocks"})], **limits)
    done = await stage.call("run", suite, *SMALL)
    assert done.code == 3, done.err
    assert "ended (its event loop was blocked: where, its log says; " in done.err
    assert result_of(stage)["holes"] == {hole: 1}
    said = "".join(log.read_text() for log in (stage.home / "logs" / "b").iterdir())
    assert '"event": "loop.blocked"' in said
    assert "agent.py:" in said
    assert re.search(rf"c#1 +{hole} +{told}", done.out)


async def test_a_solver_that_forks_and_goes_on_in_both_is_still_one_worker(stage: Stage) -> None:
    """The child has its parent's connection, event loop and leases: its failure would be taken for its parent's."""
    cases = [case("forks", solver="forks"), *(case(f"c{number}") for number in range(3))]
    done = await stage.call("run", stage.suite(cases, quorum="100%"), *SMALL)
    assert done.code == 0, done.err
    result = result_of(stage)
    assert (result["runs"], result["rejects"]) == (dict.fromkeys((f"{one['id']}#1" for one in cases), "pass"), {})
    await check_scored_once(stage, result["runs"])


# --- told to stop -----------------------------------------------------------------------------------------


async def test_a_role_that_is_told_to_stop_hands_back_at_once_and_nothing_is_counted_against_the_run(
    stage: Stage,
) -> None:
    """A machine is taken away with a warning: nobody waits for its leases to run out (here they would last an hour)."""
    cases = [case("c", score_gate="go"), case("a", gate="go"), case("b", gate="go")]
    suite = stage.suite(cases, lease="1h", concurrency=2)
    command = stage.start("run", suite, *SMALL)
    async with stage.watch("b") as batch:
        held = await in_hand(batch, 2, 1)
        told = stage.roles()
        for one in told:
            one.signal(signal.SIGTERM)
        await replaced(stage, told)
        again = await in_hand(batch, 2, 1)
        assert {row.run: (row.gen, row.epoch) for row in held} == {"a#1": (1, 0), "b#1": (1, 0), "c#1": (1, 1)}
        assert {row.run: (row.gen, row.epoch) for row in again} == {"a#1": (2, 0), "b#1": (2, 0), "c#1": (1, 2)}
        assert [(row.attempts, row.score_attempts) for row in again] == [(1, 0), (1, 0), (1, 1)]
        for run in ("a#1", "b#1"):
            (part,) = await batch.parts("run.yield", run)
            assert (part.fence, part.op, part.verb) == ("transcript", "fence", "commit")
        assert len([one for one in await batch.history() if one.command == "run.score_yield"]) == 1
        stage.open_gate("go")
        done = await command.end()
    assert done.code == 0, done.err
    assert "ended (told to stop by somebody else), started again" in done.err
    assert result_of(stage)["runs"] == {"a#1": "pass", "b#1": "pass", "c#1": "pass"}


async def interrupted(stage: Stage, command: Command, number: signal.Signals) -> None:
    """Stop the starter while its roles have runs in hand, and see that none of them outlives it."""
    async with stage.watch("b") as batch:
        await in_hand(batch, 2, 1)
    command.process.send_signal(number)
    await command.end()
    await eventually(lambda: drained(stage), "roles and server to end")


async def test_an_interrupted_run_says_how_to_resume_and_resuming_ends_the_same(
    stage: Stage, undisturbed: dict[str, Any]
) -> None:
    """Ctrl-C: leases handed back, no process left, no JSON written; the same command with the batch's name goes on."""
    suite = stage.suite(CASES, concurrency=2)
    command = stage.start("run", suite, *SMALL)
    await interrupted(stage, command, signal.SIGINT)
    stopped = command.done()
    assert stopped.code == 130
    (line,) = [line for line in stopped.err.splitlines() if line.startswith("evalbus: ")]
    assert line == f"evalbus: interrupted; batch b is open; resume with: evalbus run '{suite}' --batch b{SAME}"
    assert not (stage.root / "out.json").exists()
    open_all(stage)
    assert (await stage.call("run", suite, *SMALL)).code == 0
    assert result_of(stage)["runs"] == undisturbed["runs"]


async def test_a_run_whose_starter_is_killed_leaves_no_role_behind_and_can_be_resumed(
    stage: Stage, undisturbed: dict[str, Any]
) -> None:
    """Nobody is there to stop the roles, so the kernel tells them; what they held they hand back themselves."""
    suite = stage.suite(CASES, concurrency=2)
    await interrupted(stage, stage.start("run", suite, *SMALL), signal.SIGKILL)
    open_all(stage)
    done = await stage.call("run", suite, *SMALL)
    assert done.code == 0, done.err
    assert result_of(stage)["runs"] == undisturbed["runs"]


# --- silent for longer than its lease ----------------------------------------------------------------------


async def test_a_worker_that_wakes_up_late_is_refused_and_takes_nothing_from_its_successor(stage: Stage) -> None:
    """SIGSTOP for longer than a lease: another takes the run over, then the first wakes up with a result in hand.

    The solver answers with its generation, so a late verdict would be a wrong one. At the moment of the refusal the
    successor is still at work: its entry must still be pending for it, whoever had tried to acknowledge it.
    """
    suite = stage.suite([case("a", answer="{gen}", target="2", gate="a-{gen}")], lease="3s", quorum="100%")
    command = stage.start("run", suite, *LARGER)
    async with stage.watch("b") as batch:
        (first,) = await eventually(batch.held, "a worker to take the run")
        (sleeper,) = [one for one in stage.roles(Role.WORKER) if one.options and one.options.name == first.consumer]
        sleeper.signal(signal.SIGSTOP)

        async def taken_over() -> RunRow | None:
            row = await batch.row("a#1")
            return row if row is not None and row.gen == 2 else None

        second = await eventually(taken_over, "another worker to take it over")
        assert second.consumer != first.consumer
        stage.open_gate("a-1")
        sleeper.signal(signal.SIGCONT)

        async def refused() -> bool:
            # Its result, or the beat that was due as well and was there first: then it never presents its result.
            return bool({"stale_gen", "stale_lease"} & (await batch.bus.counters(batch.batch)).refusals.keys())

        await eventually(refused, "the late worker to be refused")
        assert await batch.pending(Group.WORKER) == {second.entry: second.consumer}
        claims = [entry for entry in await batch.history() if entry.command == "run.claim"]
        assert (claims[0].envelope["consumer"], claims[1].envelope["consumer"]) == (first.consumer, second.consumer)
        for late in [entry for entry in await batch.history() if entry.command == "run.seal"]:
            assert [(part.verb, part.reason) for part in late.parts] == [("reject", "stale_gen")]
            assert (late.envelope["lease_id"], late.envelope["gen"]) == (claims[0].envelope["lease_id"], 1)
            assert b'"text": "1"' in late.presented[2]
        stage.open_gate("a-2")
        done = await command.end()
    assert done.code == 0, done.err
    result = result_of(stage)
    assert (result["runs"], result["holes"]) == ({"a#1": "pass"}, {})
    assert result["rejects"].keys() <= {"stale_gen", "stale_lease"}
    await check_scored_once(stage, result["runs"])
