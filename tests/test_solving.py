"""Solvers: an answer, or one line why there is none; and cancellations that are not swallowed."""

from __future__ import annotations

import asyncio
import gc
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bus.types import Gen, RunId
from tests.suites import MINIMAL, make_suite
from workers.cases import Case
from workers.run import Run, seed_of
from workers.solving import SolverError, SolverTimeoutError, make_solver
from workers.suite import Suite
from workers.workspace import prepare

PATIENCE = 60.0
"""Seconds that a condition may take on a busy machine."""


def python(root: Path, code: str) -> Suite:
    """A suite whose solver is that code's `solve`."""
    toml = MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"')
    return make_suite(root, toml, agent_DOT_py=code)


def command(root: Path, line: str, more: str = "", **files: str) -> Suite:
    """A suite whose solver is that command."""
    return make_suite(root, more + MINIMAL.replace('command = ["cat"]', line), **files)


def run_of(suite: Suite, root: Path, case: Case | None = None) -> Run:
    """A run of the suite's first case."""
    case = case or suite.cases[0]
    run = RunId(f"{case.id}#1")
    return Run(run, case, 1, Gen(7), seed_of(run), prepare(suite, case, root / "work"))


async def answer(suite: Suite, root: Path, case: Case | None = None) -> str:
    """What the suite's solver says."""
    run = run_of(suite, root, case)
    return await make_solver(suite).solve(run.case, run)


async def failure(suite: Suite, root: Path) -> str:
    """The one line of its failure."""
    with pytest.raises(SolverError) as caught:
        await answer(suite, root)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- functions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "async def solve(case, run):\n    return f'{case.input} {run.trial} {run.gen} {run.id}'\n",
        "def solve(case, run):\n    return f'{case.input} {run.trial} {run.gen} {run.id}'\n",
        "class Agent:\n    async def __call__(self, case, run):\n"
        "        return f'{case.input} {run.trial} {run.gen} {run.id}'\nsolve = Agent()\n",
        "async def other(case, run):\n    return f'{case.input} {run.trial} {run.gen} {run.id}'\n"
        "def solve(case, run):\n    return other(case, run)\n",
    ],
    ids=["async", "plain", "object", "returns a coroutine"],
)
async def test_a_function_answers(tmp_path: Path, code: str) -> None:
    """Async, plain, or anything that can be called."""
    assert await answer(python(tmp_path / "suite", code), tmp_path) == "1 1 7 a#1"


WAITING = (
    "import pathlib, time\n"
    "def solve(case, run):\n"
    "    (run.workspace.path / 'begun').touch()\n"
    "    deadline = time.monotonic() + 60\n"
    "    while not (run.workspace.path / 'go').exists() and time.monotonic() < deadline:\n"
    "        time.sleep(0.001)\n"
    "    return 'in time' if time.monotonic() < deadline else 'too late'\n"
)
"""A plain function that blocks its thread until it finds the file `go`."""


async def begun(root: Path) -> None:
    """Wait until the solver has begun."""
    async with asyncio.timeout(PATIENCE):
        while not (root / "work" / "begun").exists():
            await asyncio.sleep(0.001)


async def test_a_plain_function_does_not_hold_up_the_worker(tmp_path: Path) -> None:
    """It runs in a thread: heartbeats go on meanwhile, or the lease would be lost."""
    task = asyncio.ensure_future(answer(python(tmp_path / "suite", WAITING), tmp_path))
    await begun(tmp_path)
    (tmp_path / "work" / "go").touch()
    assert await task == "in time"


async def test_a_function_works_in_the_workspace(tmp_path: Path) -> None:
    """Writes, reads, commands."""
    code = (
        "async def solve(case, run):\n"
        "    await run.workspace.write('a.py', 'print(6 * 7)')\n"
        "    done = await run.workspace.run(['{python}', 'a.py'])\n"
        "    return done.stdout.decode().strip()\n"
    )
    assert await answer(python(tmp_path / "suite", code), tmp_path) == "42"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('no\\nluck')", "ValueError: no luck (agent.py:5)"),
        ("raise KeyError", "KeyError (agent.py:5)"),
        ("import sys; sys.exit(3)", "SystemExit: 3 (agent.py:5)"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt (agent.py:5)"),
        ("raise BaseException('no')", "BaseException: no (agent.py:5)"),
        ("return 42", "the solver returned int, an answer is text (str)"),
        ("return None", "the solver returned NoneType, an answer is text (str): a return is missing"),
        ("return {}", "the solver returned dict, an answer is text (str): json.dumps makes text of it"),
        ("return b'x'", "the solver returned bytes, an answer is text (str)"),
        ("return '\\ud800'", "the answer is not valid Unicode (a lone surrogate at 0)"),
        ("raise ExceptionGroup('g', [OSError('inner')])", "OSError: inner (agent.py:5)"),
        ("raise asyncio.CancelledError", "it was cancelled by its own code"),
        ("raise GeneratorExit", "GeneratorExit (agent.py:5)"),
        ("raise StopIteration", "RuntimeError: coroutine raised StopIteration"),
        ("raise Odd", "Odd (agent.py:5)"),
        ("raise RuntimeError('x' * 1000)", "RuntimeError: " + "x" * 285 + "… (agent.py:5)"),
    ],
)
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_whatever_a_function_does_wrong_is_one_line(tmp_path: Path, kind: str, body: str, said: str) -> None:
    """The line becomes the detail of the hole `solver_error`, with where it was raised; the worker lives."""
    odd = "class Odd(Exception):\n    def __str__(self): raise RuntimeError\n"
    code = f"import asyncio\n{odd}{kind} solve(case, run):\n    {body}\n"
    assert await failure(python(tmp_path / "suite", code), tmp_path) == said


def test_a_solver_that_is_left_behind_by_its_loop_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its coroutine is closed then, by the very exception that a solver may also raise itself."""
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    suite = python(
        tmp_path / "suite", "import asyncio\nasync def solve(case, run):\n    await asyncio.Event().wait()\n"
    )
    loop = asyncio.new_event_loop()
    task = loop.create_task(answer(suite, tmp_path))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert not task.done()
    del task
    gc.collect()
    assert unraisable == []


async def test_cancelling_a_solver_is_not_its_failure(tmp_path: Path) -> None:
    """The lease is gone, or the worker is told to stop: nobody may record a hole for that."""
    code = (
        "import asyncio\n"
        "async def solve(case, run):\n"
        "    await run.workspace.write('begun', '')\n"
        "    await asyncio.sleep(600)\n"
    )
    task = asyncio.ensure_future(answer(python(tmp_path / "suite", code), tmp_path))
    await begun(tmp_path)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_time_limit_from_outside_reaches_a_function(tmp_path: Path) -> None:
    """The worker keeps the time of a run. A plain function's thread is left behind: nobody waits for it."""
    task = asyncio.ensure_future(answer(python(tmp_path / "suite", WAITING), tmp_path))
    await begun(tmp_path)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await task
    (tmp_path / "work" / "go").touch()


# --- commands ---------------------------------------------------------------------------------------------


async def test_a_command_gets_the_prompt_and_its_output_is_the_answer(tmp_path: Path) -> None:
    """On standard input, as UTF-8; one line end is taken off, blanks are the candidate's."""
    suite = command(tmp_path / "suite", 'command = ["sh", "-c", "cat; echo \' \'; echo"]')
    assert await answer(suite, tmp_path, Case("a", "é?")) == "é? \n"
    assert await answer(suite, tmp_path, Case("a", {"q": 1})) == '{"q": 1} \n'


async def test_a_command_finds_its_script_its_prompt_and_its_workspace(tmp_path: Path) -> None:
    """The prompt's file is not in the workspace: that is sealed, and it would be the candidate's work."""
    script = (
        "import os, sys\n"
        "prompt, workspace, case = sys.argv[1:]\n"
        "assert os.path.samefile(os.getcwd(), workspace) and os.listdir('.') == [], os.listdir('.')\n"
        "assert sys.stdin.read() == ''\n"
        "print(case, open(prompt).read(), os.path.basename(os.environ['EVALBUS_SUITE']), end='')\n"
    )
    line = 'command = ["{python}", "{suite}/agent.py", "{prompt_file}", "{workspace}", "{id}"]\nstdin = false'
    suite = command(tmp_path / "suite", line, agent_DOT_py=script)
    assert await answer(suite, tmp_path) == "a 1 suite"
    assert [path.name for path in tmp_path.iterdir() if "prompt" in path.name] == []


async def test_a_command_sees_the_variables_that_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An API key has to reach it; nothing else does. One that is not set is not made up."""
    monkeypatch.setenv("API_KEY", "k")
    monkeypatch.setenv("OTHER", "o")
    line = 'command = ["sh", "-c", "echo $API_KEY$OTHER$UNSET"]\nenv = ["API_KEY", "UNSET"]'
    assert await answer(command(tmp_path / "suite", line), tmp_path) == "k"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('["sh", "-c", "echo a >&2; echo b >&2; exit 3"]', "sh: exit code 3: b"),
        ('["false"]', "false: exit code 1"),
        ('["./no-such-program"]', "cannot run './no-such-program': No such file or directory"),
        ('["sh", "-c", "kill -9 $$"]', "sh: killed by SIGKILL"),
        (r'["printf", "\\377"]', "printf: its output is not UTF-8 (byte 0)"),
        ('["yes"]', "yes: killed: it wrote more than its limit of output"),
    ],
)
async def test_whatever_a_command_does_wrong_is_one_line(tmp_path: Path, line: str, said: str) -> None:
    """An answer that was cut, or that cannot be read, is no answer."""
    suite = command(tmp_path / "suite", f"command = {line}\n[limits]\noutput = '10kB'")
    assert await failure(suite, tmp_path) == said


async def test_a_command_that_takes_too_long_is_told_apart(tmp_path: Path) -> None:
    """It becomes the hole `solver_timeout`."""
    suite = command(tmp_path / "suite", 'command = ["sleep", "600"]', 'timeout = "200ms"\n')
    run = run_of(suite, tmp_path)
    with pytest.raises(SolverTimeoutError, match=r"^sleep: timed out after \d+\.\d s$"):
        await make_solver(suite).solve(run.case, run)


# --- the run ----------------------------------------------------------------------------------------------


def test_a_seed_belongs_to_the_run_and_to_nothing_else() -> None:
    """The same on every machine and in every attempt; another for each run. It fits what numpy takes."""
    assert seed_of(RunId("a#1")) == 2681427780
    seeds = {seed_of(RunId(f"case{n}#{trial}")) for n in range(100) for trial in range(1, 6)}
    assert len(seeds) == 500
    assert all(0 <= seed < 2**32 for seed in seeds)


async def test_notes_go_where_the_worker_says(tmp_path: Path) -> None:
    """Without a worker there is no transcript, and a note must not vanish."""
    run = run_of(python(tmp_path / "suite", "def solve(case, run): ...\n"), tmp_path)
    with pytest.raises(RuntimeError, match="no transcript"):
        await run.note("lost")
    notes: list[str] = []

    async def note(text: str) -> None:
        notes.append(text)

    await replace(run, note=note).note("kept")
    assert notes == ["kept"]
