"""An endpoint that fails: every failure has an end and a name, nothing stays reserved, and no key gets out."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from rich.console import Console

from bus.redis_bus import RedisBus
from bus.wire import Wire
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
from tests.waiting import until
from workers import redaction
from workers.lab import Lab
from workers.lab.mischief import Api
from workers.results.fetching import fetch_outcome
from workers.results.outcome import render

IN_MEMORY = pytest.mark.parametrize("stage", ["memory"], indirect=True)
ON_SERVER = pytest.mark.parametrize("stage", ["server"], indirect=True)


@pytest.fixture(params=["memory", "server"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ModelStage]:
    """Nothing declared yet, in either place."""
    place = InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("server"))
    one = ModelStage(place, tmp_path)
    yield one
    await one.aclose()
    redaction.forget()


async def one_run(stage: ModelStage, lab: Lab, model: str = "", code: str = ASKS_ONCE, top: str = "") -> str:
    """Run a suite of one case to its end; the hole's reason, or the answer's bin."""
    await stage.declare(suite_of(lab, f"quorum = 1\n{top}", model), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    counters = await stage.run_to_the_end()
    assert counters.reserved == 0
    [ended] = [*counters.hole_reasons, *(name for name, count in counters.bins.items() if count)]
    return ended


# --- answers that are none --------------------------------------------------------------------------------


@pytest.mark.parametrize("mischief", ["no-identity", "blank", "html", "empty"])
async def test_an_answer_that_is_none_costs_a_retry_and_is_asked_for_again(stage: ModelStage, mischief: str) -> None:
    """It was paid for, and is no part of the transcript."""
    with Lab(seed=1) as lab:
        lab.misbehave("model", mischief, 2)
        assert await one_run(stage, lab) == "pass"
        assert asked(lab) == 3
        assert await stage.kinds_of(A) == ["model", "answer"]


async def test_a_run_that_gets_no_answer_ends_as_a_named_hole(stage: ModelStage) -> None:
    """Two retries, and the third answer was none either; the hole says what the last one lacked."""
    with Lab(seed=1, mischief={"model.no-identity": 1.0}) as lab:
        assert await one_run(stage, lab) == "retries_exhausted"
        assert asked(lab) == 3
        assert "identity" in (await stage.row(A)).detail


@IN_MEMORY
async def test_no_solver_can_catch_the_end_of_its_run(stage: ModelStage) -> None:
    """A bare `except` around the call, and an answer made up in its place: it would have been a result."""
    code = (
        "async def solve(case, run):\n    try:\n        await run.model.complete('x')\n"
        "    except BaseException:\n        pass\n    return case.input\n"
    )
    with Lab(seed=1, mischief={"model.no-identity": 1.0}) as lab:
        assert await one_run(stage, lab, "retries = 0", code) == "retries_exhausted"
        assert asked(lab) == 1


# --- endpoints that fail ----------------------------------------------------------------------------------


async def test_a_hung_endpoint_does_not_hang_the_batch(stage: ModelStage) -> None:
    """It accepts and never answers: the connection is closed, the slot is free, the run has an end."""
    with Lab(seed=1, mischief={"model.hang": 1.0}) as lab:
        toml = suite_of(lab, "quorum = 1\nconcurrency = 4", 'first_token = "200ms"\nretry_budget = 0\nslots = 2')
        await stage.declare(toml, agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=cases([f"c{n}" for n in range(4)]))
        counters = await stage.run_to_the_end()
        assert counters.hole_reasons == {"endpoint_error": 4}
        assert asked(lab) <= 4
        settled(counters, lab)


async def test_no_retry_is_made_when_none_is_allowed(stage: ModelStage) -> None:
    """`retry_budget = 0` is honoured by 429, by 5xx and by a cut alike."""
    for number, mischief in enumerate(("429", "500", "cut@1", "drop")):
        with Lab(seed=1, mischief={f"model.{mischief}": 1.0}) as lab:
            one = ModelStage(InMemory(), stage.root / str(number))
            try:
                code = ASKS_ONCE.replace("{case.input}", "a b c d")
                assert await one_run(one, lab, "retry_budget = 0", code) == "endpoint_error"
                assert asked(lab) == 1
            finally:
                await one.aclose()


@ON_SERVER
async def test_an_endpoint_that_asks_for_peace_is_left_in_peace_by_all_workers(stage: ModelStage) -> None:
    """One is told 429 and when to come back; nobody comes before that."""
    with Lab(seed=1, retry_after=0.5) as lab:
        lab.misbehave("model", "429@1", 1)
        toml = suite_of(lab, "concurrency = 4", "slots = 1")
        await stage.declare(toml, agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=cases([f"c{n}" for n in range(6)]))
        counters = await stage.run_to_the_end(workers=2)
        assert counters.bins["pass"] == 6
        assert lab.counts.requests[Api.MODEL].statuses["429"] == 1
        assert lab.counts.requests[Api.MODEL].early == 0


@IN_MEMORY
async def test_an_endpoint_that_takes_nothing_is_told_once_and_not_asked_again(stage: ModelStage) -> None:
    """A wrong key: every run's hole says it, and the operator's log has one line."""
    with Lab(seed=1, api_key="right") as lab, structlog.testing.capture_logs() as logged:
        toml = suite_of(lab, "quorum = 1")
        await stage.declare(toml, agent_DOT_py=ASKS_ONCE)
        counters = await stage.run_to_the_end()
        assert counters.hole_reasons == {"endpoint_error": 2}
        assert asked(lab) == 2
        assert [one["log_level"] for one in logged if one["event"] == "endpoint.unusable"] == ["error"]


# --- calls that are given up ------------------------------------------------------------------------------

GIVES_UP = """\
import asyncio
from pathlib import Path
async def solve(case, run):
    call = asyncio.ensure_future(run.model.complete("LAB-MISCHIEF: stall@1\\nLAB-TOKENS: 9"))
    while not Path(__file__).with_name("enough.log").exists():
        await asyncio.sleep(0.01)
    call.cancel()
    await asyncio.wait([call])
    return (await run.model.complete(f"LAB-ANSWER: {case.input}")).text
"""


async def test_a_solver_may_give_a_call_up_and_ask_something_else(stage: ModelStage) -> None:
    """The connection is closed, what came is paid for; its place in the transcript is `lost`, and the run goes on."""
    with Lab(seed=1) as lab:

        async def came() -> None:
            await until(lambda: lab.counts.model.delivered, "a piece of the answer")
            (stage.root / "suite" / "enough.log").touch()

        async with asyncio.TaskGroup() as both:
            both.create_task(came())
            ended = both.create_task(one_run(stage, lab, code=GIVES_UP, top='ignore = ["*.log"]'))
        assert ended.result() == "pass"
        assert await stage.kinds_of(A) == ["lost", "model", "answer"]
        settled(await stage.bus.counters(BATCH), lab)


async def test_a_worker_that_is_stopped_in_the_middle_of_an_answer_leaves_no_reservation(stage: ModelStage) -> None:
    """The run is handed back; what was delivered until then is billed, and the next worker asks anew."""
    with Lab(seed=1) as lab:
        lab.misbehave("model", "stall@2", 1)
        await stage.declare(suite_of(lab), agent_DOT_py=ASKS_ONCE.replace("ANSWER: ", "ANSWER: 1 2 3\\nLAB-TOKENS: "))
        stage.planner()
        first = stage.worker()
        await until(lambda: lab.counts.model.delivered >= 2, "two pieces of the answer")
        await first.stopped()
        counters = await stage.bus.counters(BATCH)
        assert (counters.reserved, counters.running) == (0, 0)
        stage.worker()
        stage.scorer()
        counters = await stage.closed()
        assert counters.holes == 0
        settled(counters, lab)


async def test_a_request_that_nobody_waits_for_is_dropped_and_another_is_made(stage: ModelStage) -> None:
    """The worker dies between the licence and the request: its place at the desk is its successor's to clear."""
    with Lab(seed=1) as lab:
        toml = suite_of(lab, "quorum = 1", "slots = 2", lease=SHORT)
        await stage.declare(toml, agent_DOT_py=ASKS_ONCE, cases_DOT_jsonl=ONE_CASE)
        stage.planner()
        first = stage.worker(Moment("after", "open_call"))
        await first.halted()
        stage.worker()
        stage.scorer()
        counters = await stage.closed()
        assert counters.bins["pass"] == 1
        assert asked(lab) == 1
        assert await stage.kinds_of(A) == ["lost", "model", "answer"]


# --- keys -------------------------------------------------------------------------------------------------

CANARY = "sk-canary-4f1d9a77e0"

TALKS = """\
import os
async def solve(case, run):
    key = os.environ["CANARY_KEY"]
    await run.note("my key is " + key)
    said = (await run.model.complete(f"LAB-ANSWER: {key}")).text
    if case.id == "a":
        raise ValueError(said + key)
    return key
"""


@ON_SERVER
async def test_a_key_of_the_environment_does_not_get_out(
    stage: ModelStage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The endpoint says it, the solver notes it, raises it and answers it: nothing that is written has it."""
    monkeypatch.setenv("CANARY_KEY", CANARY)
    redaction.guard_streams()
    with Lab(seed=1, api_key=CANARY) as lab, structlog.testing.capture_logs() as logged:
        toml = suite_of(lab, "quorum = 1", 'key_env = "CANARY_KEY"')
        await stage.declare(toml, agent_DOT_py=TALKS)
        counters = await stage.run_to_the_end()
    assert counters.hole_reasons == {"solver_error": 1}
    assert asked(lab) == 2
    assert isinstance(stage.place, OnServer)
    wire = await Wire.open(stage.place.target.address())
    try:
        dumped = b""
        for key in await wire.call("KEYS", "*"):
            kind = await wire.call("TYPE", key)
            read = {
                b"hash": ("HGETALL", key),
                b"list": ("LRANGE", key, 0, -1),
                b"set": ("SMEMBERS", key),
                b"stream": ("XRANGE", key, "-", "+"),
                b"string": ("GET", key),
            }
            dumped += repr(await wire.call(*read[kind])).encode()
    finally:
        wire.close()
    assert isinstance(stage.bus, RedisBus)
    screen = io.StringIO()
    render(await fetch_outcome(stage.bus, BATCH), Console(file=screen, width=200))
    assert "ValueError: ***" in screen.getvalue()
    assert CANARY not in screen.getvalue()
    assert b"my key is ***" in dumped
    assert CANARY.encode() not in dumped
    assert CANARY not in repr(logged)
    print("it is", CANARY)
    assert CANARY not in "".join(capsys.readouterr())
