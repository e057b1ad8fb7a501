"""Rescoring: the sealed runs of a closed batch under another judge, in a batch of their own; the first one stands."""

from __future__ import annotations

import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bus.errors import InputError
from bus.keys import BatchKeys
from bus.port import BatchInfo, BatchStatus, NextRuns, RunState
from bus.snapshot import Snapshot
from bus.types import BatchId, ConsumerId, Plane, RunId
from bus.wire import Wire
from tests.fleet import Stage as Fleet
from tests.fleet import Watch, case, commits, eventually, read_export
from tests.judge_stage import JudgeStage, judged_by
from tests.model_stage import A, B, InMemory, Moment, OnServer
from tests.rescoring import CASES, LENIENT, NEW, Rescoring, over_a_first
from tests.stage import BATCH, SUITE
from tests.suites import make_suite
from workers import redaction
from workers.batch_spec import spec_of
from workers.lab import Lab
from workers.processes.role_options import Role
from workers.rescoring import check_source, next_name
from workers.suite import Suite

C = RunId("c#1")


@pytest.fixture(params=["memory", "server"])
def place(request: pytest.FixtureRequest) -> InMemory | OnServer:
    """Where the batches are."""
    return InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("server"))


@pytest.fixture
async def stage(place: InMemory | OnServer, tmp_path: Path) -> AsyncIterator[Rescoring]:
    """A first batch, closed: one passed, one failed, one hole of the solver's."""
    second = await over_a_first(place, tmp_path)
    assert [row.bin or row.hole for row in await second.rows(BATCH)] == ["pass", "fail", "solver_error"]
    yield second
    await second.aclose()
    redaction.forget()


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


async def everything_of(stage: Rescoring, batch: BatchId) -> object:
    """All that is kept of a batch, byte for byte; of a hash, in no order: the server may move it in its table."""
    if isinstance(stage.place, InMemory):
        at = stage.place.world.batches[batch]
        return repr((at.lives, at.history, at.refused, vars(at.histogram), vars(at.judge), vars(at.transcript)))
    assert isinstance(stage.place, OnServer)
    wire = await Wire.open(stage.place.target.address())
    prefix = BatchKeys(Plane.LIVE, batch).batch_row.removesuffix("batch")
    keys = sorted(key for key in await wire.call("KEYS", "*") if key.decode().startswith(prefix))
    found: dict[bytes, object] = {}
    for key in keys:
        is_hash = await wire.call("TYPE", key) == b"hash"
        found[key] = sorted(_pairs(await wire.call("HGETALL", key))) if is_hash else await wire.call("DUMP", key)
    wire.close()
    assert len(found) > 5
    return found


class _Again(Rescoring):
    """A third batch, over the second."""

    batch = BatchId("third")


# --- what comes of it -------------------------------------------------------------------------------------


async def test_another_judge_has_a_batch_of_its_own_and_the_first_one_stands(stage: Rescoring) -> None:
    """The same sealed heads, other bins; of the first batch not a byte has changed, its history included."""
    before = await everything_of(stage, BATCH)
    assert (await stage.begin()).applied
    stage.planner()
    stage.scorer()
    counters = await stage.until(lambda now: now.status.ended)
    old, new = await stage.rows(BATCH), await stage.rows()
    assert [row.bin or row.hole for row in new] == ["pass", "pass", "solver_error"], [r.detail for r in new]
    assert [(row.run, row.head, row.tree, row.digest) for row in new] == [
        (row.run, row.head, row.tree, row.digest) for row in old
    ]
    assert all(row.tree for row in new[:2]), "the workspaces were taken over, too"
    assert (counters.status, counters.scored, counters.holes) == (BatchStatus.CLOSED, 2, 1)
    assert (counters.in_flight, counters.hole_reasons) == (0, {"solver_error": 1})
    assert await everything_of(stage, BATCH) == before


async def test_the_candidate_of_a_rescored_run_is_the_first_batchs(stage: Rescoring) -> None:
    """Whose answers these are does not change with who judges them; the judge is the new suite's."""
    await stage.begin()
    first, second = await stage.bus.info(BATCH), await stage.bus.info(NEW)
    assert first is not None and second is not None
    assert second.spec.candidate == first.spec.candidate != stage.suite.candidate
    assert second.spec.judge == stage.suite.judge != first.spec.judge
    assert (second.spec.source, first.spec.source) == (BATCH, "")


async def test_a_judges_own_hole_is_scored_anew_and_can_be_so_again(stage: Rescoring) -> None:
    """The first judge broke down at each run; what was sealed was sealed. And its scores can be scored anew in turn."""
    broken = LENIENT.replace('kind = "regex"\npattern = "[12]"', 'kind = "command"\ncommand = ["false"]\nfail_on = [7]')
    await stage.begin(broken)
    stage.planner()
    stage.scorer()
    counters = await stage.until(lambda now: now.status.ended)
    assert counters.hole_reasons == {"scorer_error": 2, "solver_error": 1}
    third = _Again.batch
    suite = make_suite(stage.root / "judge", LENIENT, cases_DOT_jsonl=CASES)
    source = await stage.bus.info(NEW)
    assert source is not None and source.status is BatchStatus.INCONCLUSIVE
    await stage.bus.create(spec_of(suite, third, source.spec))
    bound = (source.spec.candidate, suite.judge)
    decision = await stage.bus.adopt(third, NEW, NextRuns(0, [A, B, C], [], ConsumerId("p"), *bound))
    assert (decision.answer["admitted"], decision.answer["why_stopped"]) == (3, "drained")
    rows = await stage.rows(third)
    assert [row.state for row in rows] == [RunState.SEALED, RunState.SEALED, RunState.HOLE]
    assert [row.head for row in rows] == [row.head for row in await stage.rows(BATCH)]
    again = _Again(stage.place, stage.root)  # what is judged was sealed two batches before
    again.suite = suite
    again.planner()
    again.scorer()
    counters = await again.until(lambda now: now.status.ended)
    await again.aclose()
    assert (dict(counters.bins), dict(counters.hole_reasons)) == ({"pass": 2, "fail": 0}, {"solver_error": 1})


async def test_a_model_judges_what_was_sealed_before(stage: Rescoring) -> None:
    """Its grades, its tokens and what it said are the second batch's."""
    with Lab(seed=1) as lab:
        toml = judged_by(lab).replace('python = "agent.py:solve"', 'command = ["false"]')
        await stage.begin(toml, judge_DOT_txt="{answer}\nLAB-ANSWER: GRADE: C\n")
        stage.planner()
        stage.scorer()
        counters = await stage.until(lambda now: now.status.ended)
        assert counters.bins == {"pass": 2, "fail": 0}
        assert counters.spent == lab.counts.model.billed > 0
    assert (await stage.bus.counters(BATCH)).spent == 0


# --- deaths -----------------------------------------------------------------------------------------------


async def snapshot_of(stage: Rescoring) -> list[tuple[str, ...]]:
    """What the second batch closed over, but for the epochs: those tell how often scorers died."""
    info = await stage.bus.info(NEW)
    assert info is not None
    closed = Snapshot.from_rows(await stage.rows(), info.spec)
    rows = json.loads(closed.canonical_bytes())["rows"]
    return [tuple(str(value) for value in (row[0], row[1], *row[3:])) for row in rows]


@pytest.mark.parametrize(
    "moment",
    [Moment("after", "score_claim"), Moment("before", "score"), Moment("after", "score")],
    ids=str,
)
async def test_scorers_that_die_change_nothing_of_the_result(stage: Rescoring, moment: Moment) -> None:
    """Each sealed run is judged by whoever survives it, once."""
    await stage.begin()
    stage.planner()
    await stage.scorer(moment).halted()
    stage.scorer()
    counters = await stage.until(lambda now: now.status.ended)
    assert counters.bins == {"pass": 2, "fail": 0}
    old = await stage.rows(BATCH)
    assert await snapshot_of(stage) == [(row.run, row.head, "pass", "1") for row in old[:2]]


@pytest.mark.parametrize("moment", [Moment("before", "adopt"), Moment("after", "adopt")], ids=str)
async def test_a_planner_that_dies_while_it_takes_over_loses_nothing(stage: Rescoring, moment: Moment) -> None:
    """The next one finds the cursor where the step left it: before it, or after it."""
    await stage.begin()
    await stage.planner(moment).halted()
    stage.planner()
    stage.scorer()
    counters = await stage.until(lambda now: now.status.ended)
    assert (counters.scored, counters.holes) == (2, 1)


# --- the step itself --------------------------------------------------------------------------------------


async def test_a_batch_that_is_still_open_is_not_taken_over(place: InMemory | OnServer, tmp_path: Path) -> None:
    """Its next score may still be a hole; and who asks is told before anything is declared, too."""
    stage = Rescoring(place, tmp_path)
    await JudgeStage.declare(stage, SUITE)
    info = await stage.bus.info(BATCH)
    assert info is not None
    with pytest.raises(InputError, match=r"batch 'b' is still open"):
        check_source(info, [], stage.suite)
    await stage.bus.create(spec_of(stage.suite, NEW, info.spec))
    assert (await stage.adopt(A)).reason == "source_open"
    await stage.aclose()


async def test_taking_over_is_refused_for_what_does_not_fit(stage: Rescoring) -> None:
    """Another source than the one declared, a run that it lacks, the same run twice, a cursor that has moved."""
    await stage.begin()
    assert (await stage.adopt(A, source=NEW)).reason == "batch_mismatch"
    assert (await stage.adopt(RunId("z#1"))).reason == "unknown_run"
    assert (await stage.adopt(A, A)).reason == "schema"
    assert (await stage.adopt(A, B)).answer["admitted"] == 2
    again = await stage.adopt(A, B)
    assert (again.verb, again.answer["cursor"]) == ("duplicate", 2)
    assert (await stage.bus.counters(NEW)).sealed == 2
    assert (await stage.bus.counters(BATCH)).refusals == {}


async def test_what_is_taken_over_keeps_to_the_bound(stage: Rescoring) -> None:
    """One place: the next run is taken over when the first has been scored. A hole needs none."""
    await stage.begin("bound = 1\n" + LENIENT)
    decision = await stage.adopt(A, B, C)
    assert (decision.answer["admitted"], decision.answer["why_stopped"]) == (1, "bound_full")
    assert (await stage.adopt(B, C, cursor=1)).reason == "bound_full"
    counters = await stage.bus.counters(NEW)
    assert (counters.sealed, counters.in_flight, counters.holes) == (1, 1, 0)


def test_a_suite_with_other_cases_is_refused_in_one_line(tmp_path: Path) -> None:
    """A run that is missing would be missing from the denominator, so it is named."""
    suite = make_suite(tmp_path / "s")
    info = closed_info(suite)
    with pytest.raises(InputError, match=r"run 'c#1' of batch 'old' is none of this suite's"):
        check_source(info, [A, B, C], suite)
    with pytest.raises(InputError, match=r"run 'b#1' of this suite is none of batch 'old''s"):
        check_source(info, [A], suite)
    check_source(info, [B, A], suite)


def closed_info(suite: Suite) -> BatchInfo:
    """A closed batch of a suite."""
    return BatchInfo(spec_of(suite, BatchId("old")), BatchStatus.CLOSED, Plane.LIVE, "i")


def test_a_new_batch_is_named_after_the_first() -> None:
    """And never like one that is there."""
    assert next_name(BatchId("n"), []) == "n.rescored-1"
    assert next_name(BatchId("n"), ["n.rescored-1", "n.rescored-2", "x"]) == "n.rescored-3"


# --- the command ------------------------------------------------------------------------------------------


@pytest.mark.process
async def test_the_command_scores_a_closed_batch_anew_though_its_scorers_are_killed(tmp_path: Path) -> None:
    """The first batch's export is the same text before and after; a second call under the name shows the result."""
    with Fleet.opened(tmp_path) as stage:
        suite = stage.suite([case("a"), case("b", answer="2"), case("c", solver="raises")], lease="500ms")
        assert (await stage.call("run", suite, "--workers", 1, "--batch", "old")).code == 0
        assert (await stage.call("export", "old", "before.jsonl")).code == 0
        judge = stage.suite(
            [case("a", score_gate="go"), case("b", "x", "2", score_gate="go"), case("c")],
            directory="judge",
            lease="500ms",
        )
        rescore = ("rescore", "old", "--judge", judge, "--batch", "new", "--json", "new.json")
        command = stage.start(*rescore)
        async with stage.watch("new") as batch:
            await eventually(lambda: _scoring(batch), "both to be scored")
            for scorer in stage.roles(Role.SCORER):
                scorer.signal(signal.SIGKILL)
            stage.open_gate("go")
            done = await command.end()
        assert done.code == 0, done.err
        told = json.loads((tmp_path / "new.json").read_text())
        assert (told["bins"], told["holes"]) == ({"pass": 2, "fail": 0}, {"solver_error": 1})
        assert (await stage.call("export", "old", "after.jsonl")).code == 0
        assert (tmp_path / "after.jsonl").read_text() == (tmp_path / "before.jsonl").read_text()
        assert (await stage.call("export", "new", "new.jsonl")).code == 0
        old, new = (commits(read_export(tmp_path / f"{name}.jsonl"), "histogram.score") for name in ("before", "new"))
        assert {row["run"]: row["digest"] for row in new} == {row["run"]: row["digest"] for row in old}
        assert (await stage.call(*rescore)).code == 0
        assert json.loads((tmp_path / "new.json").read_text()) == told
        refused = await stage.call("run", judge, "--batch", "new")
        assert (refused.code, refused.complaint[:48]) == (2, "batch 'new' exists and scores batch 'old' anew, ")


async def _scoring(batch: Watch) -> bool:
    counters = await batch.counters()
    return counters is not None and counters.scoring == 2


@pytest.mark.process
async def test_the_command_refuses_what_it_cannot_score(tmp_path: Path) -> None:
    """In one line each, and nothing is declared."""
    with Fleet.opened(tmp_path) as stage:
        suite = stage.suite([case("a")])
        other = stage.suite([case("a"), case("b")], directory="other")
        assert (await stage.call("run", suite, "--workers", 1, "--batch", "old")).code == 0
        for words, said in (
            (("nobody", "--judge", suite), "no batch 'nobody' on this server"),
            (("old", "--judge", other), f"{other}/suite.toml: run 'b#1' of this suite is none of batch 'old'"),
            (("old", "--judge", tmp_path / "none"), f"{tmp_path}/none: no such file or directory"),
        ):
            done = await stage.call("rescore", *words)
            assert done.code == 2
            assert done.complaint.startswith(said), done.complaint
        assert "rescored" not in (await stage.call("status")).out
