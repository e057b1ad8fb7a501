"""The roles themselves, on both buses: planner, worker and scorer as they are, with deaths at the worst moments."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from bus.errors import InputError
from bus.port import BatchStatus, Group, RunState
from bus.redis_bus import RedisBus
from bus.target import Target
from bus.types import BatchId, ConsumerId
from tests.batches import FixedDoor
from tests.fragile import Moment
from tests.stage import BATCH, ONE_CASE, SOLVER, SUITE, A, B, Lasting, Stage, stage
from tests.suites import make_suite
from tests.waiting import PATIENCE, soon, until
from workers.batch_spec import spec_of
from workers.catalogue import Catalogue, Served
from workers.consumer import Consumer
from workers.planner import Planner
from workers.runtime import SystemRuntime
from workers.scorer import ScorerRole
from workers.tools.serving import JointConsumer, Toolroom
from workers.worker import Worker

__all__ = ["stage"]


class AnotherJudge(Catalogue):
    """A scorer that judges otherwise than the batch was bound to: another release, another model behind an alias."""

    async def open_batches(self) -> list[Served]:
        """The batches, with another judge."""
        return [replace(one, judge="another judge") for one in await super().open_batches()]


class AnotherThatLasts(Lasting, AnotherJudge):
    """Such a scorer, which goes on when its batch has ended."""


BOTH_SCORED = {"pass": 1, "fail": 1}


# --- nobody dies ------------------------------------------------------------------------------------------


async def test_a_batch_closes_over_all_its_runs(stage: Stage) -> None:
    """Each run is claimed, sealed and scored once, and the number is over both."""
    await stage.declare()
    stage.planner()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert (counters.status, counters.bins, counters.refusals) == (BatchStatus.CLOSED, BOTH_SCORED, {})
    for run, verdict in ((A, "pass"), (B, "fail")):
        row = await stage.row(run)
        assert (row.state, row.bin, row.gen, row.attempts, row.epoch) == (RunState.SCORED, verdict, 1, 1, 1)
        assert await stage.kinds(run) == ["note", "answer"]


async def test_every_role_of_a_batch_that_was_asked_for_ends_with_it(stage: Stage) -> None:
    """Nobody has to stop them."""
    await stage.declare()
    processes = [stage.planner(), stage.worker(), stage.scorer()]
    await stage.closed()
    await soon(asyncio.gather(*(process.task for process in processes)))


async def test_who_comes_first_leaves_others_their_share_of_a_small_batch(stage: Stage) -> None:
    """It has room for all eight runs; with them in one process, another one would idle beside it."""
    cases = "".join(f'{{"id": "c{n}", "input": "1", "target": "1"}}\n' for n in range(8))
    await stage.declare("concurrency = 8\n" + SUITE, cases_DOT_jsonl=cases)
    stage.planner()
    await stage.until(lambda now: now.in_flight == 8)
    first = stage.worker(Moment("after", "read"), name="first")
    await first.halted()
    assert len(await stage.bus.own_pending(Group.WORKER, ConsumerId("first"), [BATCH], 100)) == 1
    stage.worker()
    stage.scorer()
    await stage.until(lambda now: now.scored >= 7)
    first.bus.resume()
    await stage.closed()


async def test_roles_that_serve_one_batch_after_another_remember_none_that_has_ended(
    server: Target, tmp_path: Path
) -> None:
    """A pool on a shared server lives for months, and each of its batches is small."""
    suite = make_suite(tmp_path / "suite", SUITE, agent_DOT_py=SOLVER)
    buses = [RedisBus(FixedDoor(server.address()), SystemRuntime()) for _ in range(3)]
    runtime, room = SystemRuntime(), Toolroom()
    catalogues = [Catalogue(bus, suite) for bus in buses]
    worker = Worker(buses[0], runtime, ConsumerId("w"), tmp_path / "w")
    scorer = ScorerRole(buses[1], runtime, ConsumerId("s"), tmp_path / "s")
    planner = Planner(buses[2], runtime, ConsumerId("p"), catalogues[2], buses[2].opened)
    tools = room.consumer(buses[0], runtime, ConsumerId("w"), catalogues[0])
    runs = Consumer(buses[0], runtime, Group.WORKER, ConsumerId("w"), catalogues[0], worker, opened=buses[0].opened)
    scores = Consumer(buses[1], runtime, Group.SCORER, ConsumerId("s"), catalogues[1], scorer, opened=buses[1].opened)
    async with _at_work([JointConsumer([runs, tools]), scores, planner], buses):
        for name in (BatchId("over-1"), BatchId("over-2")):
            assert (await buses[2].create(spec_of(suite, name))).applied
            while name in await buses[2].batches():
                await asyncio.sleep(0.02)
        while planner._watches or _is_known("over-1"):  # the last one may still be in somebody's hands
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _at_work(
    roles: Sequence[Consumer | JointConsumer | Planner], buses: Sequence[RedisBus]
) -> AsyncIterator[None]:
    """These roles, until the block ends."""
    tasks = [asyncio.create_task(role.run()) for role in roles]
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for bus in buses:
            await bus.aclose()


def _is_known(batch: str) -> bool:
    gc.collect()
    return any(isinstance(one, Served) and one.batch == batch for one in gc.get_objects())


async def test_a_worker_and_a_scorer_remember_no_suite_of_which_all_batches_have_ended(
    server: Target, tmp_path: Path
) -> None:
    """A pool without a suite of its own meets another state of it with each commit, and each has its cases."""
    buses = [RedisBus(FixedDoor(server.address()), SystemRuntime()) for _ in range(3)]
    runtime, who = SystemRuntime(), ConsumerId("c")
    worker = Worker(buses[0], runtime, who, tmp_path / "w")
    scorer = ScorerRole(buses[1], runtime, who, tmp_path / "s")
    roles: list[Consumer | JointConsumer | Planner] = [
        Consumer(buses[0], runtime, Group.WORKER, who, Catalogue(buses[0]), worker),
        Consumer(buses[1], runtime, Group.SCORER, who, Catalogue(buses[1]), scorer),
        Planner(buses[2], runtime, who, Catalogue(buses[2])),
    ]
    async with _at_work(roles, buses):
        for number in (1, 2):
            suite = make_suite(tmp_path / f"commit-{number}", SUITE, agent_DOT_py=f"{SOLVER}# {number}\n")
            name = BatchId(f"of-commit-{number}")
            assert (await buses[2].create(spec_of(suite, name))).applied
            while name in await buses[2].batches():
                await asyncio.sleep(0.02)
        while (worker._solvers.keys() | scorer._scorers.keys()) - {suite.digest}:
            await asyncio.sleep(0.02)


async def test_a_scorer_that_only_compares_has_more_runs_in_hand_than_a_worker(stage: Stage) -> None:
    """Each of them waits for the server alone, four times; one after another they would hold up a fleet of workers."""
    cases = "".join(f'{{"id": "c{n}", "input": "1", "target": "1"}}\n' for n in range(64))
    await stage.declare("concurrency = 1\n" + SUITE, cases_DOT_jsonl=cases)
    stage.planner()
    stage.worker()
    await stage.until(lambda now: now.sealed >= 5)
    scorer = stage.scorer(Moment("after", "read"), name="s")
    await scorer.halted()
    assert len(await stage.bus.own_pending(Group.SCORER, ConsumerId("s"), [BATCH], 100)) == 4
    scorer.bus.resume()
    await stage.until(lambda now: now.scored >= 5)


async def test_two_planners_admit_each_run_once(stage: Stage) -> None:
    """They wake up together all the time, and there is room for two runs only."""
    cases = "".join(f'{{"id": "c{n}", "input": "1", "target": "1"}}\n' for n in range(8))
    await stage.declare("bound = 2\n" + SUITE.replace("300ms", "5s"), cases_DOT_jsonl=cases)
    stage.planner()
    stage.planner()
    stage.worker()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert counters.bins == {"pass": 8, "fail": 0}
    assert [row.attempts for row in await stage.bus.rows(BATCH, await stage.bus.run_ids(BATCH))] == [1] * 8


# --- deaths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "attempts"),
    [
        (Moment("before", "claim"), 1),
        (Moment("after", "claim"), 2),
        (Moment("before", "append"), 2),
        (Moment("after", "append"), 2),
        (Moment("before", "seal"), 2),
        (Moment("after", "seal"), 1),
    ],
    ids=str,
)
async def test_a_worker_that_dies_is_replaced_and_its_run_is_scored_once(
    stage: Stage, moment: Moment, attempts: int
) -> None:
    """Whatever it had committed is the prefix that its successor goes on from; what it had not is done again."""
    await stage.declare()
    stage.planner()
    stage.scorer()
    await stage.worker(moment, name="dying").halted()
    stage.worker(name="successor")
    counters = await stage.closed()
    assert (counters.status, counters.bins) == (BatchStatus.CLOSED, BOTH_SCORED)
    row = await stage.row(A)
    assert (row.attempts, row.gen) == (attempts, attempts)
    assert await stage.kinds(A) == await stage.kinds(B) == ["note", "answer"]


@pytest.mark.parametrize(
    ("moment", "epoch"),
    [
        (Moment("before", "score_claim"), 1),
        (Moment("after", "score_claim"), 2),
        (Moment("before", "score"), 2),
        (Moment("after", "score"), 1),
    ],
    ids=str,
)
async def test_a_scorer_that_dies_is_replaced_and_its_run_is_scored_once(
    stage: Stage, moment: Moment, epoch: int
) -> None:
    """A verdict that was signed stands though its scorer never heard so; any other is judged anew, in a new epoch.

    The dying one has one run in hand: of another, how far it had come with it would be left to chance.
    """
    await stage.declare()
    stage.planner()
    stage.worker()
    await stage.scorer(moment, slots=1).halted()
    stage.scorer()
    counters = await stage.closed()
    assert (counters.status, counters.bins) == (BatchStatus.CLOSED, BOTH_SCORED)
    rows = await stage.bus.rows(BATCH, [A, B])
    assert sorted(row.epoch for row in rows) == sorted([1, epoch])


async def test_a_planner_that_dies_with_wake_ups_in_hand_holds_nothing_up(stage: Stage) -> None:
    """It was told that a place is free and never said so to anyone. The next one reads the counters, not its mail."""
    await stage.declare("bound = 1\n" + SUITE)
    stage.worker()
    stage.scorer()
    await stage.planner(Moment("after", "read")).halted()
    assert (await stage.bus.counters(BATCH)).admitted == 1
    stage.planner()
    counters = await stage.closed()
    assert counters.bins == BOTH_SCORED


async def test_a_run_that_nobody_survives_ends_as_poison(stage: Stage) -> None:
    """Two may die of it; the third is told."""
    await stage.declare(cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    stage.scorer()
    for _ in range(2):
        await stage.worker(Moment("after", "claim")).halted()
    stage.worker()
    counters = await stage.closed()
    assert (counters.status, counters.hole_reasons) == (BatchStatus.INCONCLUSIVE, {"poison": 1})


async def test_a_run_that_no_scorer_survives_ends_as_judge_failed(stage: Stage) -> None:
    """Likewise; but then the candidate has done its part, and the hole says so."""
    await stage.declare(cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    stage.worker()
    for _ in range(2):
        await stage.scorer(Moment("after", "score_claim")).halted()
    stage.scorer()
    counters = await stage.closed()
    assert counters.hole_reasons == {"judge_failed": 1}


# --- stalls and stops -------------------------------------------------------------------------------------


async def test_a_worker_that_stalled_beyond_its_lease_is_refused_and_its_successor_seals(stage: Stage) -> None:
    """Both have an answer for the same run. The late one speaks first, and is not heard."""
    await stage.declare(cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    stage.scorer()
    late = stage.worker(Moment("before", "seal"), Moment("after", "seal"), name="late")
    await late.halted()
    successor = stage.worker(Moment("before", "seal"), name="successor")
    await successor.halted()
    late.bus.resume()
    await late.halted()
    assert str(late.bus.decided[-1]) == "reject stale_gen (transcript.append)"
    successor.bus.resume()
    counters = await stage.closed()
    assert counters.bins == {"pass": 1, "fail": 0}
    row = await stage.row(A)
    assert (row.gen, row.attempts) == (2, 2)
    assert [event.gen for event in await stage.bus.transcript(BATCH, A)] == [1, 2]


async def test_a_scorer_that_stalled_beyond_its_lease_is_refused_and_its_successors_verdict_stands(
    stage: Stage,
) -> None:
    """It judged as another release of the judge would have; the verdict that counts is signed in the next epoch."""
    await stage.declare(cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    stage.worker()
    late = stage.scorer(Moment("before", "score"), Moment("after", "score"), catalogue=AnotherThatLasts)
    await late.halted()
    stage.scorer(name="successor")
    counters = await stage.closed()
    late.bus.resume()
    await late.halted()
    assert str(late.bus.decided[-1]) == "reject stale_lease (run.score)"
    row = await stage.row(A)
    assert (row.bin, row.epoch, row.consumer) == ("pass", 2, "successor")
    assert (await stage.bus.counters(BATCH)).snapshot_id == counters.snapshot_id


async def test_a_worker_that_is_stopped_hands_its_run_back_and_no_attempt_is_counted(stage: Stage) -> None:
    """Stopped as often as the run may be delivered, it is not poison; and nobody waits for the lease to run out."""
    waiting = "import asyncio\nasync def solve(case, run):\n    await asyncio.sleep(0 if run.gen == 4 else 3600)\n"
    await stage.declare(
        SUITE.replace("300ms", "1h"), cases_DOT_jsonl=ONE_CASE, agent_DOT_py=waiting + "    return case.input\n"
    )
    stage.planner()
    stage.scorer()
    for _ in range(3):
        worker = stage.worker()
        await stage.until(lambda now: now.running == 1)
        await worker.stopped()
        assert (await stage.row(A)).state is RunState.QUEUED
    stage.worker()
    counters = await stage.closed()
    assert counters.bins == {"pass": 1, "fail": 0}
    row = await stage.row(A)
    assert (row.gen, row.attempts) == (4, 1)


async def test_a_scorer_that_is_stopped_hands_its_run_back_and_no_attempt_is_counted(stage: Stage) -> None:
    """Likewise."""
    judging = (
        "import asyncio\nfrom pathlib import Path\n\n"
        "async def score(case, sealed):\n"
        "    while not Path(__file__).with_name('go.log').exists():\n        await asyncio.sleep(0.005)\n"
        "    return True\n"
    )
    toml = SUITE.replace("300ms", "1h").replace('kind = "exact"', 'kind = "python"\npython = "judge.py:score"')
    await stage.declare('ignore = ["*.log"]\n' + toml, cases_DOT_jsonl=ONE_CASE, judge_DOT_py=judging)
    stage.planner()
    stage.worker()
    for _ in range(3):
        scorer = stage.scorer()
        await stage.until(lambda now: now.scoring == 1)
        await scorer.stopped()
        assert (await stage.row(A)).state is RunState.SEALED
    (stage.root / "suite" / "go.log").touch()
    stage.scorer()
    await stage.closed()
    row = await stage.row(A)
    assert (row.bin, row.epoch, row.score_attempts) == ("pass", 4, 1)


@pytest.mark.parametrize("group", [Group.WORKER, Group.SCORER], ids=str)
async def test_who_is_stopped_before_it_hears_of_its_claim_hands_back_what_was_granted(
    stage: Stage, group: Group
) -> None:
    """The lease is an hour, and its attempt would count: nobody but who asked for it can hand it back."""
    await stage.declare("concurrency = 1\n" + SUITE.replace("300ms", "1h"), cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    if group is Group.WORKER:
        stopped = stage.worker(Moment("after", "claim"))
    else:
        stage.worker()
        stopped = stage.scorer(Moment("after", "score_claim"), slots=1)
    await stopped.halted()
    role = cast("Consumer", stopped.role)
    role.stop()
    await until(lambda: all(lease.stopped for lease in role._holding.values()), "it to stop")
    stopped.bus.resume()
    await soon(stopped.task)
    row = await stage.row(A)
    assert row.state not in (RunState.RUNNING, RunState.SCORING), "it may have been scored: memory keeps nobody waiting"
    stage.worker()
    stage.scorer()
    await stage.closed()
    row = await stage.row(A)
    assert (row.attempts, row.score_attempts) == (1, 1)


# --- room for few judgements -----------------------------------------------------------------------------


async def test_a_scorer_that_finds_too_many_being_scored_keeps_the_run_and_asks_again_soon(stage: Stage) -> None:
    """With a lease of an hour: given away, the message would wait for it to run out."""
    judging = (
        "import asyncio\nfrom pathlib import Path\n\n"
        "async def score(case, sealed):\n"
        "    while not Path(__file__).with_name('go.log').exists():\n        await asyncio.sleep(0.005)\n"
        "    return True\n"
    )
    toml = SUITE.replace("300ms", "1h").replace('kind = "exact"', 'kind = "python"\npython = "judge.py:score"')
    await stage.declare('ignore = ["*.log"]\nmax_in_flight = 1\n' + toml, judge_DOT_py=judging)
    stage.planner()
    stage.worker()
    await stage.until(lambda now: now.sealed == 2)
    stage.scorer()
    await stage.until(lambda now: now.scoring == 1)
    stage.scorer()
    await stage.until(lambda now: now.refusals.get("backpressure", 0) >= 2)
    (stage.root / "suite" / "go.log").touch()
    counters = await stage.closed()
    assert counters.bins == {"pass": 2, "fail": 0}
    rows = await stage.bus.rows(BATCH, [A, B])
    assert [row.score_attempts for row in rows] == [1, 1]


async def test_a_scorer_that_waits_for_room_still_takes_over_what_the_room_is_taken_by(stage: Stage) -> None:
    """The dead scorer's run is the one being scored. Who waited for its end in the only slot would wait for ever."""
    await stage.declare("max_in_flight = 1\n" + SUITE)
    stage.planner()
    stage.worker()
    await stage.until(lambda now: now.sealed == 2)
    await stage.scorer(Moment("after", "score_claim")).halted()
    stage.scorer()
    counters = await stage.closed()
    assert counters.bins == BOTH_SCORED


async def test_code_that_does_not_import_is_found_before_anything_is_claimed(stage: Stage) -> None:
    """Nobody holds a lease while a suite is imported, however long that takes; and no run is to blame when it fails."""
    await stage.declare()
    stage.planner()
    await stage.until(lambda now: now.admitted == 2)
    (stage.root / "suite" / "agent.py").write_text("import no_such_module\n")
    worker = stage.worker()
    with pytest.raises(InputError, match=r"agent.py does not import: ModuleNotFoundError: .*no_such_module") as caught:
        await soon(worker.task)
    assert "\n" not in str(caught.value)
    assert [row.gen for row in await stage.bus.rows(BATCH, [A, B])] == [0, 0]


# --- ends that are no score -------------------------------------------------------------------------------


async def test_a_solver_that_raises_is_a_named_hole_and_is_not_asked_again(stage: Stage) -> None:
    """It is a finding about the candidate, whoever runs it."""
    raising = (
        "def solve(case, run):\n    if case.id == 'b':\n        raise ValueError('no idea')\n    return case.input\n"
    )
    await stage.declare(agent_DOT_py=raising)
    stage.planner()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert (counters.bins, counters.hole_reasons) == ({"pass": 1, "fail": 0}, {"solver_error": 1})
    row = await stage.row(B)
    assert row.attempts == 1
    assert "no idea" in row.detail


async def test_a_scorer_that_raises_is_a_named_hole_and_neither_pass_nor_fail(stage: Stage) -> None:
    """The candidate is not to blame, and must not profit."""
    raising = (
        "def score(case, sealed):\n    if case.id == 'b':\n        raise ValueError('no rubric')\n    return True\n"
    )
    toml = SUITE.replace('kind = "exact"', 'kind = "python"\npython = "judge.py:score"')
    await stage.declare(toml, judge_DOT_py=raising)
    stage.planner()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert (counters.bins, counters.hole_reasons) == ({"pass": 1, "fail": 0}, {"scorer_error": 1})


# --- another judge ----------------------------------------------------------------------------------------


def judged(policy: str) -> str:
    """The suite under a policy of the judge's fence."""
    return SUITE + f'[judge]\npolicy = "{policy}"\nreplay_budget = 1\n'


async def test_another_judge_is_a_hole_by_default(stage: Stage) -> None:
    """A row must not say something about a pair that nobody chose."""
    await stage.declare(judged("reject"), cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    stage.worker()
    stage.scorer(catalogue=AnotherJudge)
    counters = await stage.closed()
    assert counters.hole_reasons == {"judge_mismatch": 1}


async def test_under_review_a_score_by_another_judge_waits_for_a_person(stage: Stage) -> None:
    """Who accepts the judge by name; then the same scorer's verdict counts, under the new binding."""
    await stage.declare(judged("review"), cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    stage.worker()
    stage.scorer(catalogue=AnotherJudge)
    await stage.until(lambda now: now.review == 1)
    assert await stage.bus.parked(BATCH) == [A]
    decision = await stage.bus.rebind(BATCH, A, 1, stage.suite.candidate, "another judge")
    assert decision.applied, decision
    counters = await stage.closed()
    assert (counters.bins, counters.review) == ({"pass": 1, "fail": 0}, 0)
    assert (await stage.row(A)).judge_epoch == 2


async def test_under_replay_the_planner_binds_the_score_anew(stage: Stage) -> None:
    """The judge that was meant is asked once more; the other one was on its way out."""
    await stage.declare(judged("replay"), cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    stage.worker()
    await stage.scorer(Moment("after", "score"), catalogue=AnotherJudge).halted()
    stage.scorer()
    counters = await stage.closed()
    assert counters.bins == {"pass": 1, "fail": 0}
    assert counters.refusals == {"judge_mismatch": 1}
    assert (await stage.row(A)).judge_epoch == 2


# --- what got lost ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [Group.WORKER, Group.SCORER])
async def test_a_lost_group_is_found_by_the_planner(stage: Stage, group: Group) -> None:
    """Somebody made it anew behind the messages: nobody would ever be given them. The rows know which they were."""
    await stage.declare()
    stage.planner()
    if group is Group.SCORER:
        stage.worker()
        await stage.until(lambda now: now.sealed == 2)
    else:
        await stage.until(lambda now: now.admitted == 2)
    await stage.place.lose_group(group)
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert counters.bins == BOTH_SCORED


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise GeneratorExit", "GeneratorExit"),
        ("asyncio.current_task().cancel()\n    await asyncio.sleep(600)", "cancelled by its own code"),
        ("raise asyncio.CancelledError", "cancelled by its own code"),
    ],
    ids=["generator exit", "cancels its task", "cancelled error"],
)
async def test_a_solver_that_ends_as_if_it_had_been_told_to_is_a_named_hole(stage: Stage, body: str, said: str) -> None:
    """It was taken for the worker's own stop: the run went back, time and again, and ended as poison."""
    code = f"import asyncio\nasync def solve(case, run):\n    await run.note('here')\n    {body}\n"
    await stage.declare(agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    stage.worker()
    counters = await stage.closed()
    assert counters.hole_reasons == {"solver_error": 1}
    row = await stage.row(A)
    assert (row.attempts, row.gen) == (1, 1)
    assert said in row.detail
