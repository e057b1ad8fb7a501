"""The way in for clients of the solver's own: what they ask is counted, fenced and told again, as by `run.model`."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.fleet import Stage as Fleet
from tests.fleet import eventually
from tests.model_stage import BATCH, SHORT, A, InMemory, ModelStage, Moment, OnServer, asked, cases, settled, suite_of
from tests.stage import ONE_CASE
from tests.suites import write_suite
from tests.waiting import until
from workers.lab import Lab
from workers.lab.mischief import Api
from workers.modelling.plane import Unlimited
from workers.processes.role_options import Role

KEY = "sk-canary-4f1d9a77e0"

CLIENT = '''
import json, os, sys, urllib.error, urllib.request
from pathlib import Path


def post(base_url, api_key, **body):
    """What the client of another project would send: status, and the body as it came."""
    request = urllib.request.Request(
        f"{base_url}/chat/completions",
        json.dumps({"model": "lab-1", **body}).encode(),
        {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def said(text):
    return [{"role": "user", "content": text}]


def text_of(answer):
    return json.loads(answer)["choices"][0]["message"]["content"]
'''
"""A client in plain HTTP, for solvers that block."""

ASKS_TWICE = f"""{CLIENT}

def solve(case, run):
    first = post(run.model.base_url, run.model.api_key, messages=said(f"LAB-ANSWER: {{case.input}}"))[1]
    post(run.model.base_url, run.model.api_key, messages=said("LAB-TOKENS: 40"), temperature=0)
    return text_of(first)
"""

IN_MEMORY = pytest.mark.parametrize("stage", ["memory"], indirect=True)
"""For what is decided in the worker alone."""


@pytest.fixture(params=["memory", "server"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ModelStage]:
    """Nothing declared yet, in either place."""
    place = InMemory() if request.param == "memory" else OnServer(request.getfixturevalue("server"))
    one = ModelStage(place, tmp_path)
    yield one
    await one.aclose()


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """An endpoint that wants its key, which the worker has."""
    monkeypatch.setenv("CANARY_KEY", KEY)
    with Lab(seed=1, api_key=KEY) as one:
        yield one


def suite(lab: Lab, top: str = "", model: str = "", lease: str = "5s") -> str:
    """A suite that asks the lab by its key, and ignores what its solvers write down for the test."""
    return suite_of(lab, f'ignore = ["*.told"]\n{top}', f'key_env = "CANARY_KEY"\n{model}', lease=lease)


def writes_down(body: str) -> str:
    """A solver that blocks: `body` calls `tell(what)`, which the test reads."""
    tell = 'def tell(what):\n    Path(__file__).with_name("a.told").write_text(json.dumps(what))\n'
    return f"{CLIENT}\n{tell}\ndef solve(case, run):\n    url, key = run.model.base_url, run.model.api_key\n{body}"


async def told(stage: ModelStage, case: str = "a") -> Any:  # noqa: ANN401 - what the solver wrote
    """What a solver has written down."""
    file = stage.root / "suite" / f"{case}.told"
    await until(lambda: file.exists() and file.read_text().endswith(("]", "}", '"')), "a solver to write it down")
    return json.loads(file.read_text())


async def played(stage: ModelStage, lab: Lab, body: str, top: str = "quorum = 1") -> Any:  # noqa: ANN401
    """One run of such a solver, to the end of its batch; what it wrote down."""
    await stage.declare(suite(lab, top), agent_DOT_py=writes_down(body), cases_DOT_jsonl=ONE_CASE)
    await stage.run_to_the_end()
    return await told(stage)


# --- what is asked ----------------------------------------------------------------------------------------


async def test_a_client_of_its_own_is_counted_and_written_down_as_the_models_calls_are(
    stage: ModelStage, lab: Lab
) -> None:
    """Two cases, two questions each, from solvers that block: ledger and endpoint agree to the token."""
    await stage.declare(suite(lab), agent_DOT_py=ASKS_TWICE)
    counters = await stage.run_to_the_end()
    assert counters.bins == {"pass": 1, "fail": 1}
    assert asked(lab) == 4
    settled(counters, lab)
    assert counters.durable == counters.spent > 80
    assert await stage.kinds_of(A) == ["model", "model", "answer"]


@IN_MEMORY
async def test_an_async_client_reads_a_stream_with_calls_of_tools_and_the_tokens(stage: ModelStage, lab: Lab) -> None:
    """In OpenAI's chunks: each call with its index and a whole text of arguments; the usage last, when it is wanted."""
    code = """
import httpx, json
from pathlib import Path

async def solve(case, run):
    tool = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
    body = {"model": run.model.name, "tools": [tool], "stream": True, "stream_options": {"include_usage": True}}
    body["messages"] = [{"role": "user", "content": 'LAB-CALL: {"name": "search", "arguments": {"word": "Oslo"}}'}]
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {run.model.api_key}"}) as client:
        streamed = await client.post(f"{run.model.base_url}/chat/completions", json=body)
        whole = await client.post(f"{run.model.base_url}/chat/completions", json=body | {"stream": False})
    told = [streamed.headers["content-type"], streamed.text, whole.json()]
    Path(__file__).with_name("a.told").write_text(json.dumps(told))
    return case.input
"""
    await stage.declare(suite(lab), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    counters = await stage.run_to_the_end()
    settled(counters, lab)
    kind, streamed, whole = await told(stage)
    assert kind.startswith("text/event-stream")
    *events, done = [event.removeprefix("data: ") for event in streamed.strip().split("\n\n")]
    assert done == "[DONE]"
    first, last, usage = map(json.loads, events)
    (call,) = first["choices"][0]["delta"].pop("tool_calls")
    assert call.pop("index") == 0
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("search", {"word": "Oslo"})
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [one["choices"][0]["finish_reason"] for one in (first, last)] == [None, "tool_calls"]
    assert whole["choices"][0]["message"]["tool_calls"][0]["function"] == call["function"]
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert usage["usage"] == whole["usage"]
    assert whole["usage"]["total_tokens"] * 2 == counters.spent
    assert whole["model"] == first["model"] == "lab-1"


@IN_MEMORY
async def test_questions_that_come_at_once_are_asked_one_after_another(stage: ModelStage, lab: Lab) -> None:
    """As those of `run.model` are: each has its place in the transcript before the next is asked."""
    code = """
import asyncio, httpx

async def solve(case, run):
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {run.model.api_key}"}, timeout=60) as client:
        def ask(text):
            body = {"model": run.model.name, "messages": [{"role": "user", "content": f"LAB-ANSWER: {text}"}]}
            return client.post(f"{run.model.base_url}/chat/completions", json=body)
        told = await asyncio.gather(*map(ask, range(4)))
    return " ".join(one.json()["choices"][0]["message"]["content"] for one in told)
"""
    await stage.declare(suite(lab), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    await stage.run_to_the_end()
    assert (await stage.events(A))[-1]["text"] == "0 1 2 3"
    assert lab.counts.requests[Api.MODEL].most_open == 1
    assert await stage.kinds_of(A) == [*["model"] * 4, "answer"]


COMMAND = f"""{CLIENT}
if os.environ.get("CANARY_KEY") or {KEY!r} in str(os.environ):
    sys.exit("the key is in the command's environment")
assert os.environ["OPENAI_BASE_URL"] == os.environ["OPENAI_API_BASE"]
url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
status, answer = post(url, key, model=os.environ["EVALBUS_MODEL"], messages=said("LAB-ANSWER: " + sys.stdin.read()))
print(text_of(answer))
"""


def as_command(toml: str, rest: str = "") -> str:
    """The suite, with a program for its solver."""
    return toml.replace('python = "agent.py:solve"', f'command = ["{{python}}", "{{suite}}/agent.py"]\n{rest}')


async def test_a_command_finds_the_way_in_its_environment_and_never_the_key(stage: ModelStage, lab: Lab) -> None:
    """A program that knows nothing of evalbus: the variables that OpenAI's clients read lead it to the run's model."""
    await stage.declare(as_command(suite(lab)), agent_DOT_py=COMMAND, cases_DOT_jsonl=cases(["a", "b"]))
    counters = await stage.run_to_the_end()
    assert counters.bins == {"pass": 2, "fail": 0}, await stage.row(A)
    settled(counters, lab)
    assert await stage.kinds_of(A) == ["model", "answer"]


@IN_MEMORY
async def test_a_command_that_waits_for_room_is_not_slow(
    stage: ModelStage, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fleet's rates let its request leave after more than the time of its run: that is no time of its own."""
    waits = iter([2.2])

    async def take(_self: Unlimited, _tokens: int) -> float:
        return next(waits, 0.0)

    monkeypatch.setattr(Unlimited, "take", take)
    await stage.declare(as_command(suite(lab, 'timeout = "2s"')), agent_DOT_py=COMMAND, cases_DOT_jsonl=ONE_CASE)
    assert (await stage.run_to_the_end()).bins == {"pass": 1, "fail": 0}


@IN_MEMORY
async def test_a_command_that_is_too_slow_ends_as_any_other(stage: ModelStage, lab: Lab) -> None:
    """The worker's clock ends it."""
    code = "import time\ntime.sleep(600)\n"
    top = 'timeout = "500ms"\nquorum = 1'
    await stage.declare(as_command(suite(lab, top)), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    assert (await stage.run_to_the_end()).hole_reasons == {"solver_timeout": 1}


@IN_MEMORY
async def test_a_command_that_is_given_a_key_of_its_own_goes_its_own_way(
    stage: ModelStage, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of one way and half of the other would send the real key to the wrong place."""
    monkeypatch.setenv("OPENAI_API_KEY", "mine")
    code = 'import os\nprint(os.environ["OPENAI_API_KEY"], "OPENAI_BASE_URL" in os.environ)\n'
    case = json.dumps({"id": "a", "input": "", "target": "mine False"})
    toml = as_command(suite(lab), 'env = ["OPENAI_API_KEY"]')
    await stage.declare(toml, agent_DOT_py=code, cases_DOT_jsonl=case)
    assert (await stage.run_to_the_end()).bins == {"pass": 1, "fail": 0}


@IN_MEMORY
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"model": "gpt-9"}, 404, "the suite's model is 'lab-1', and the request is for 'gpt-9'"),
        ({"messages": []}, 400, "messages: List should have at least 1 item"),
        ({"messages": "hello"}, 400, "messages: Input should be a valid list"),
        ({"max_tokens": 0}, 400, "max_tokens is a whole number"),
        ({"n": 2}, 400, "'n' must be 1"),
        ({"logprobs": True}, 400, "'logprobs' is not taken"),
        ({"functions": [{"name": "f"}]}, 400, "'functions' is not taken"),
    ],
    ids=["other-model", "no-message", "no-messages", "no-tokens", "two-answers", "logprobs", "functions"],
)
async def test_what_is_not_passed_on_is_refused_and_never_left_out_in_silence(
    stage: ModelStage, lab: Lab, body: dict[str, object], status: int, said: str
) -> None:
    """The candidate is bound to its model, and an answer has what was asked for, or there is none. The run goes on."""
    code = f"    tell(post(url, key, **{{'messages': said('hi'), **{body!r}}}))\n    return '1'\n"
    seen, answer = await played(stage, lab, code)
    assert seen == status
    assert said in json.loads(answer)["error"]["message"]
    assert asked(lab) == 0
    assert await stage.kinds_of(A) == ["answer"]


@IN_MEMORY
@pytest.mark.parametrize(
    "of_suite", ["max_tokens = 2", "extra = {max_completion_tokens = 2}"], ids=["same-name", "other-name"]
)
async def test_what_the_suite_sets_holds_until_a_request_says_otherwise(
    stage: ModelStage, lab: Lab, of_suite: str
) -> None:
    """As for `run.model`: two tokens are the suite's, three the second request's own, whatever either calls them."""
    code = (
        "    ask = {'messages': said('LAB-TOKENS: 9')}\n"
        "    answers = [post(url, key, **ask, **more)[1] for more in ({}, {'max_tokens': 3})]\n"
        "    tell([json.loads(answer)['usage']['completion_tokens'] for answer in answers])\n    return '1'\n"
    )
    toml = suite(lab, model=of_suite)
    await stage.declare(toml, agent_DOT_py=writes_down(code), cases_DOT_jsonl=ONE_CASE)
    await stage.run_to_the_end()
    assert await told(stage) == [2, 3]


# --- fences -----------------------------------------------------------------------------------------------


async def test_the_budget_is_the_batchs_and_its_end_is_the_runs(stage: ModelStage, lab: Lab) -> None:
    """The run is the hole that it would be by `run.model`, whatever its client makes of the error; nothing is asked."""
    code = "    tell(post(url, key, messages=said('LAB-TOKENS: 40'), max_tokens=400))\n    return '1'\n"
    status, answer = await played(stage, lab, code, "quorum = 1\nbudget = 300")
    assert status == 402, "no client sends that again by itself"
    error = json.loads(answer)["error"]
    assert error["code"] == "over_budget"
    assert "0 tokens are spent" in error["message"]
    assert (await stage.row(A)).hole == "over_budget"
    assert asked(lab) == 0


async def test_who_takes_a_run_over_is_told_the_same_byte_for_byte_and_does_not_pay_twice(
    stage: ModelStage, lab: Lab
) -> None:
    """The first worker dies with one answer bound; its successor's client gets that answer, and asks the second."""
    code = (
        "    first = post(url, key, messages=said(f'LAB-ANSWER: {case.input}'))[1]\n"
        "    with Path(__file__).with_name('answers.told').open('a') as file:\n        file.write(first + '\\n')\n"
        "    post(url, key, messages=said('LAB-TOKENS: 40'))\n    return text_of(first)\n"
    )
    await stage.declare(suite(lab, lease=SHORT), agent_DOT_py=writes_down(code), cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    first = stage.worker(Moment("after", "open_call"), Moment("after", "open_call"))
    await first.halted()
    first.bus.resume()
    await first.halted()  # its second question is announced, and not asked
    stage.worker()
    stage.scorer()
    counters = await stage.closed()
    assert counters.bins == {"pass": 1, "fail": 0}
    assert asked(lab) == 2
    settled(counters, lab)
    assert await stage.kinds_of(A) == ["model", "lost", "model", "answer"]
    one, other = (stage.root / "suite" / "answers.told").read_text().splitlines()
    assert one == other


async def test_a_late_request_of_an_older_generation_is_refused(stage: ModelStage, lab: Lab) -> None:
    """A worker stalls as it announces a call, and wakes up when another one has ended the run: nothing is asked."""
    code = (
        "    answer = post(url, key, messages=said(f'LAB-ANSWER: {case.input}'))\n"
        "    if run.gen == 1:\n        tell(answer)\n    return text_of(answer[1])\n"
    )
    await stage.declare(suite(lab, lease=SHORT), agent_DOT_py=writes_down(code), cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    first = stage.worker(Moment("before", "open_call"))
    await first.halted()
    stage.worker()
    stage.scorer()
    await stage.closed()
    first.bus.resume()
    status, answer = await told(stage)
    assert (status, json.loads(answer)["error"]["code"]) == (410, "run_over")
    assert asked(lab) == 1
    assert await stage.kinds_of(A) == ["model", "answer"]


@IN_MEMORY
async def test_a_key_ends_with_its_attempt_and_the_endpoint_is_on_the_loopback_alone(
    stage: ModelStage, lab: Lab
) -> None:
    """While another run of the same worker is under way: its address is the same, and its key is another."""
    code = (
        "    Path(__file__).with_name(f'{case.id}.told').write_text(json.dumps([url, key]))\n"
        "    while case.id == 'b' and not Path(__file__).with_name('go.told').exists():\n"
        "        __import__('time').sleep(0.01)\n    return case.input\n"
    )
    await stage.declare(suite(lab), agent_DOT_py=writes_down(code), cases_DOT_jsonl=cases(["a", "b"]))
    stage.planner()
    stage.worker()
    stage.scorer()
    await stage.until(lambda now: now.scored == 1)
    (url, over), (same, key) = await told(stage, "a"), await told(stage, "b")
    assert same == url
    body = {"model": "lab-1", "messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient() as client:

        async def tried(method: str, path: str, authorization: str) -> httpx.Response:
            return await client.request(method, f"{url}/{path}", json=body, headers={"Authorization": authorization})

        for given in (f"Bearer {over}", f"Bearer {KEY}", f"Basic {key}", ""):
            for answer in (await tried("POST", "chat/completions", given), await tried("GET", "models", given)):
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        listed = await tried("GET", "models", f"Bearer {key}")
        assert [one["id"] for one in listed.json()["data"]] == ["lab-1"]
        elsewhere = await tried("POST", "responses", f"Bearer {key}")
        assert elsewhere.status_code == 404
        assert "POST /v1/chat/completions" in elsewhere.json()["error"]["message"]
    place = urlsplit(url)
    assert place.hostname == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", place.port), timeout=10)
    (stage.root / "suite" / "go.told").touch()
    assert (await stage.closed()).bins == {"pass": 2, "fail": 0}
    assert asked(lab) == 0


@IN_MEMORY
async def test_a_client_that_does_not_wait_gives_its_call_up(stage: ModelStage, lab: Lab) -> None:
    """The endpoint's connection is closed and what came is paid for; the next question is a call of its own."""
    lab.misbehave("model", "stall@2", 1)
    code = """
import asyncio, httpx
from pathlib import Path

async def solve(case, run):
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {run.model.api_key}"}, timeout=60) as client:
        def ask(text):
            body = {"model": "lab-1", "messages": [{"role": "user", "content": text}]}
            return client.post(f"{run.model.base_url}/chat/completions", json=body)
        waiting = asyncio.create_task(ask("LAB-TOKENS: 9"))
        while not Path(__file__).with_name("enough.told").exists():
            await asyncio.sleep(0.01)
        waiting.cancel()
        return (await ask(f"LAB-ANSWER: {case.input}")).json()["choices"][0]["message"]["content"]
"""
    await stage.declare(suite(lab), agent_DOT_py=code, cases_DOT_jsonl=ONE_CASE)
    stage.planner()
    stage.worker()
    stage.scorer()
    await until(lambda: lab.counts.model.delivered, "a piece of the answer")
    (stage.root / "suite" / "enough.told").touch()
    counters = await stage.closed()
    assert counters.bins == {"pass": 1, "fail": 0}
    assert await stage.kinds_of(A) == ["lost", "model", "answer"]
    settled(counters, lab)


# --- real processes ---------------------------------------------------------------------------------------


@pytest.mark.process
async def test_a_worker_is_killed_and_its_commands_questions_are_paid_for_once(tmp_path: Path, lab: Lab) -> None:
    """kill -9 between two questions: the next worker's command gets the first answer from the transcript."""
    code = COMMAND + (
        "gates = Path(sys.argv[1])\n"
        "with (gates / 'asked').open('a') as file:\n    file.write(answer + '\\n')\n"
        "while not (gates / 'go').exists():\n    __import__('time').sleep(0.01)\n"
        "post(url, key, messages=said('LAB-TOKENS: 40'))\n"
    )
    with Fleet.opened(tmp_path / "fleet") as fleet:
        toml = as_command(suite(lab, lease="1s")).replace('agent.py"]', f'agent.py", "{fleet.gates}"]')
        directory = write_suite(fleet.root / "suite", toml, agent_DOT_py=code, cases_DOT_jsonl=cases(["a"]))
        command = fleet.start("run", directory, "--workers", 2, "--scorers", 1, "--batch", "b", env={"CANARY_KEY": KEY})

        async def answers() -> list[str]:
            file = fleet.gates / "asked"
            return file.read_text().splitlines() if file.exists() else []

        async with fleet.watch("b") as batch:
            await eventually(answers, "the first answer")
            (held,) = await eventually(batch.held, "a worker to have the run")
            (holder,) = [one for one in fleet.roles(Role.WORKER) if one.options and one.options.name == held.consumer]
            holder.signal(signal.SIGKILL)

            async def again() -> bool:
                return len(await answers()) == 2

            await eventually(again, "the next worker's command to have its answer")
            assert asked(lab) == 1
            fleet.open_gate("go")
            done = await command.end()
            assert done.code == 0, done.err
            counters = await batch.bus.counters(BATCH)
    first, second = (tmp_path / "fleet" / "gates" / "asked").read_text().splitlines()
    assert first == second
    assert asked(lab) == 2
    assert counters.bins == {"pass": 1, "fail": 0}
    settled(counters, lab)
