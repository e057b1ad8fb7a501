"""Model calls in the path of a run, on both buses, against the lab: what is asked, how often, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.model_stage import (
    ASKS_ONCE,
    BATCH,
    SHORT,
    A,
    InMemory,
    ModelStage,
    Moment,
    OnServer,
    asked,
    cases,
    settled,
    suite_of,
)
from tests.stage import ONE_CASE
from workers.lab import Lab
from workers.lab.exchange import Exchange
from workers.lab.mischief import Api
from workers.modelling import calls

ASKS_TWICE = """\
async def solve(case, run):
    first = await run.model.complete(f"LAB-ANSWER: {case.input}")
    await run.model.complete([{"role": "user", "content": "LAB-TOKENS: 40"}], temperature=0)
    return first.text
"""


IN_MEMORY = pytest.mark.parametrize("stage", ["memory"], indirect=True)
"""For what is decided in the worker alone."""


ON_SERVER = pytest.mark.parametrize("stage", ["server"], indirect=True)
"""For what takes its time."""


@pytest.fixture(params=["memory", "server"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ModelStage]:
    """Nothing declared yet, in either place."""
    place = InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("server"))
    one = ModelStage(place, tmp_path)
    yield one
    await one.aclose()


@pytest.fixture
def lab() -> Iterator[Lab]:
    """An endpoint that behaves."""
    with Lab(seed=1) as one:
        yield one


# --- what is asked ----------------------------------------------------------------------------------------


async def test_an_answer_is_in_the_transcript_and_paid_for_exactly(stage: ModelStage, lab: Lab) -> None:
    """Streamed, flushed, bound: the ledger's tokens are those that the endpoint has billed, all of them durable."""
    await stage.declare(suite_of(lab), agent_DOT_py=ASKS_TWICE)
    counters = await stage.run_to_the_end()
    assert counters.bins == {"pass": 1, "fail": 1}
    settled(counters, lab)
    assert counters.durable == counters.spent
    first, second, answer = await stage.events(A)
    assert (first["step"], second["step"]) == ("a#1~0.1", "a#1~0.2")
    assert first["reply"]["text"] == answer["text"] == "1"
    assert first["usage"] == {"input": 2, "output": 1}


async def test_who_takes_a_run_over_is_told_the_same_and_does_not_pay_twice(stage: ModelStage, lab: Lab) -> None:
    """The first worker dies with one answer bound and the second question not asked."""
    await stage.declare(suite_of(lab, lease=SHORT), agent_DOT_py=ASKS_TWICE, cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    first = stage.worker(Moment("after", "bind_call"))
    await first.halted()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert asked(lab) == 2
    assert await stage.kinds_of(A) == ["model", "model", "answer"]
    settled(counters, lab)


async def test_a_call_that_its_worker_did_not_survive_is_lost_and_made_anew(stage: ModelStage, lab: Lab) -> None:
    """The answer had come, and nobody bound it: its place in the transcript says so, and its tokens are an orphan's."""
    await stage.declare(suite_of(lab, lease=SHORT), agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    first = stage.worker(Moment("before", "bind_call"))
    await first.halted()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert asked(lab) == 2
    events = await stage.events(A)
    assert [event["kind"] for event in events] == ["lost", "model", "answer"]
    assert events[0]["step"] == events[1]["step"], "the same question, asked again"
    assert counters.bins["pass"] == 1
    assert counters.durable == lab.counts.model.billed // 2


async def test_a_call_that_was_under_way_does_not_make_those_before_it_be_asked_again(
    stage: ModelStage, lab: Lab
) -> None:
    """Killed in its second call: its place is lost, and the first answer is still told from the transcript."""
    await stage.declare(suite_of(lab, lease=SHORT), agent_DOT_py=ASKS_TWICE, cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    first = stage.worker(Moment("after", "open_call"), Moment("after", "open_call"))
    await first.halted()
    first.bus.resume()
    await first.halted()
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert await stage.kinds_of(A) == ["model", "lost", "model", "answer"]
    assert asked(lab) == 2
    settled(counters, lab)


async def test_a_run_asks_one_question_at_a_time(stage: ModelStage, lab: Lab) -> None:
    """Several at once are asked in the order in which they came: a successor finds them in that order."""
    code = (
        "import asyncio\nasync def solve(case, run):\n"
        "    told = await asyncio.gather(*(run.model.complete(f'LAB-ANSWER: {n}') for n in range(4)))\n"
        "    return ' '.join(one.text for one in told)\n"
    )
    await stage.declare(suite_of(lab), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    await stage.run_to_the_end()
    assert lab.counts.requests[Api.MODEL].most_open == 1
    assert (await stage.events(A))[-1]["text"] == "0 1 2 3"


async def test_no_more_requests_are_at_the_endpoint_than_it_has_slots(
    stage: ModelStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all workers, however many runs they drive: the desk is the batch's."""
    with Lab(seed=1, latency=0.01, tokens=10) as lab:
        pause = Exchange.pause

        async def two_at_a_time(self: Exchange, seconds: float, *, for_client: bool = True) -> bool:
            while lab.counts.requests[Api.MODEL].most_open < 2 and self.is_open:
                await pause(self, 0.001)
            return await pause(self, seconds, for_client=for_client)

        monkeypatch.setattr(Exchange, "pause", two_at_a_time)  # however long it takes to ask, beside an answer's time
        names = [f"c{n}" for n in range(12)]
        code = "async def solve(case, run):\n    await run.model.complete(case.input)\n    return case.input\n"
        await stage.declare(
            suite_of(lab, "concurrency = 6", "slots = 2"), agent_DOT_py=code, cases_DOT_jsonl=cases(names)
        )
        counters = await stage.run_to_the_end(workers=2)
        assert counters.bins["pass"] == 12
        assert lab.counts.requests[Api.MODEL].most_open == 2
        settled(counters, lab)


async def test_a_suite_without_a_model_says_what_it_lacks(stage: ModelStage, lab: Lab) -> None:
    """Whoever copied a solver forgot the table."""
    toml = 'cases = "cases.jsonl"\n[solver]\npython = "agent.py:solve"\n[scorer]\nkind = "exact"\n'
    await stage.declare(toml, agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=ONE_CASE)
    counters = await stage.run_to_the_end()
    assert counters.hole_reasons == {"solver_error": 1}
    detail = (await stage.row(A)).detail
    assert detail.startswith("RuntimeError: run.model is not there: the suite declares no model (add a table [model]")


# --- what it costs ----------------------------------------------------------------------------------------


@ON_SERVER
async def test_the_ledger_agrees_with_the_endpoint_over_200_calls_with_cuts(
    stage: ModelStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fifth of the streams breaks somewhere: what was delivered is paid for, and nothing else; each is made again."""
    monkeypatch.setattr(calls, "_ATTEMPTS", 1_000)  # once in a while one call meets eight of them in a row
    with Lab(seed=7, mischief={"model.cut": 0.2}, tokens=30) as lab:
        names = [f"c{n}" for n in range(40)]
        code = (
            "async def solve(case, run):\n"
            "    for n in range(5):\n        await run.model.complete(f'{case.input} {n}')\n"
            "    return case.input\n"
        )
        toml = suite_of(lab, "concurrency = 20\nbudget = 1000000", "slots = 20\nretry_budget = 1000")
        await stage.declare(toml, agent_DOT_py=code, cases_DOT_jsonl=cases(names))
        stage.planner()
        stage.worker()
        stage.worker()
        stage.scorer()
        async with asyncio.timeout(60):
            while not (counters := await stage.bus.counters(BATCH)).status.ended:
                await asyncio.sleep(0.05)
        assert counters.bins["pass"] == 40
        assert lab.counts.requests[Api.MODEL].cuts["cut"] > 20
        settled(counters, lab)
        assert counters.durable < counters.spent
        assert counters.estimated == 0, "the endpoint was asked for its own figure"


async def test_two_workers_cannot_pass_the_budget_together(stage: ModelStage) -> None:
    """Each call fits by itself; the one that does not is not made, and its run is a hole with a name."""
    with Lab(seed=1, latency=0.002, tokens=50) as lab:
        names = [f"c{n}" for n in range(20)]
        code = "async def solve(case, run):\n    await run.model.complete(case.input)\n    return case.input\n"
        toml = suite_of(lab, "concurrency = 8\nbudget = 600\nquorum = 1", "max_tokens = 50\nslots = 16")
        await stage.declare(toml, agent_DOT_py=code, cases_DOT_jsonl=cases(names))
        counters = await stage.run_to_the_end(workers=2)
        settled(counters, lab)
        assert counters.spent <= 600
        assert counters.bins["pass"] >= 3
        assert counters.hole_reasons == {"over_budget": 20 - counters.bins["pass"]}


@IN_MEMORY
async def test_what_is_given_up_without_a_figure_is_billed_by_what_was_seen(stage: ModelStage) -> None:
    """Three pieces came, and the prompt must have been read: how long that was is a guess, and stands as one."""
    with Lab(seed=1, mischief={"model.cut@3": 1.0}, tokens=30) as lab:
        toml = suite_of(lab, "quorum = 1", "retry_budget = 0").replace("billing_url", "# ")
        await stage.declare(toml, agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=ONE_CASE)
        counters = await stage.run_to_the_end()
    assert counters.hole_reasons == {"endpoint_error": 1}
    assert counters.estimated > 0
    assert counters.spent == counters.estimated + 1, "the answer has one token, and so the cut comes behind it"
    assert (counters.durable, counters.reserved) == (0, 0)


@IN_MEMORY
async def test_what_a_refused_answer_is_thought_to_have_cost_is_marked_as_a_guess(stage: ModelStage) -> None:
    """A page in the place of the first answer, and no billing endpoint: its prompt was billed as if it were known."""
    with Lab(seed=1) as lab:
        lab.misbehave("model", "html", 1)
        await stage.declare(
            suite_of(lab).replace("billing_url", "# "), agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=ONE_CASE
        )
        counters = await stage.run_to_the_end()
        assert counters.bins["pass"] == 1
        assert counters.estimated > 0
        assert counters.spent == lab.counts.model.billed + counters.estimated, "nobody is billed for a proxy's page"


@IN_MEMORY
async def test_an_answer_without_usage_counts_as_a_guess_but_for_what_was_seen(stage: ModelStage) -> None:
    """It is stored, and paid for by an estimate: its transcript says so, and so does the batch."""
    with Lab(seed=1) as lab:
        toml = suite_of(lab, model="include_usage = false")
        await stage.declare(toml, agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=ONE_CASE)
        counters = await stage.run_to_the_end()
    [event] = [event for event in await stage.events(A) if event["kind"] == "model"]
    assert event["usage"]["estimated"]
    assert counters.spent == event["usage"]["input"] + event["usage"]["output"]
    assert counters.estimated == counters.spent - 1, "the answer has one token"
