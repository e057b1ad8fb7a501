"""Commands within limits: whatever a command does, it ends, its result is told, and nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from workers.processes import nursery_client
from workers.processes.commands import CommandError, Finished, Limits, clean_environment, fill, run_limited

PATIENCE = 60.0
"""Seconds that a condition may take on a busy machine; tests wait for the condition, not for this."""

linux = pytest.mark.skipif(sys.platform != "linux", reason="a service of the Linux kernel")


async def run(
    *argv: str,
    cwd: Path,
    stdin: bytes = b"",
    timeout: float = PATIENCE,  # noqa: ASYNC109 - what is tested
    limits: Limits | None = None,
    env: dict[str, str] | None = None,
) -> Finished:
    """`run_limited`, with time enough."""
    return await run_limited(argv, cwd=cwd, stdin=stdin, timeout=timeout, limits=limits, env=env)


async def timed_out_after_it_began(script: str, cwd: Path) -> Finished:
    """What came of a script that makes the file `begun` and then sleeps; it gets more time until it came so far."""
    for seconds in (0.2, 0.5, 2.0, 8.0, 30.0):
        done = await run("sh", "-c", script, cwd=cwd, timeout=seconds)
        if (cwd / "begun").exists():
            break
    return done


def until(condition: Callable[[], object], what: str) -> None:
    """Wait, in a test without an event loop, until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s until {what}"
        time.sleep(0.01)


async def until_async(condition: Callable[[], object], what: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s until {what}"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def number_in(path: Path) -> int | None:
    """The number that a command has written; None while it is not there, or half there."""
    text = path.read_text() if path.exists() else ""
    return int(text) if text.endswith("\n") else None


def nursery_pid() -> int:
    """The nursery of this very process."""
    process = nursery_client._NURSERY._process
    assert process is not None
    return process.pid


class TestResults:
    """How a command ended."""

    async def test_outputs_and_exit_code_are_told(self, tmp_path: Path) -> None:
        """Standard input arrives whole; both outputs come back apart."""
        done = await run("sh", "-c", "cat; echo oops >&2; exit 3", cwd=tmp_path, stdin=b"in\x00put")
        assert (done.stdout, done.stderr, done.exit_code, done.signal) == (b"in\x00put", b"oops\n", 3, None)
        assert (done.ok, done.outcome, done.last_line) == (False, "exit code 3", "oops")
        assert (await run("true", cwd=tmp_path)).ok

    async def test_a_death_by_signal_is_not_an_exit_code(self, tmp_path: Path) -> None:
        """A scorer that treats 1 as a verdict must not see one here."""
        done = await run("sh", "-c", "kill -SEGV $$", cwd=tmp_path)
        assert (done.exit_code, done.signal, done.outcome) == (None, signal.SIGSEGV, "killed by SIGSEGV")

    async def test_a_command_that_reads_nothing_does_not_block(self, tmp_path: Path) -> None:
        """More input than a pipe holds, and nobody who reads it."""
        assert (await run("true", cwd=tmp_path, stdin=b"x" * 10**6)).ok

    async def test_much_on_both_outputs_does_not_block(self, tmp_path: Path) -> None:
        """Each output is read while the other is full."""
        script = "import os\nfor _ in range(50):\n os.write(2, b'e' * 9999)\n os.write(1, b'o' * 9999)"
        done = await run(sys.executable, "-c", script, cwd=tmp_path)
        assert (len(done.stdout), len(done.stderr), done.truncated) == (499_950, 499_950, False)

    async def test_many_commands_at_once_keep_their_results_apart(self, tmp_path: Path) -> None:
        """One nursery serves them all."""
        done = await asyncio.gather(*(run("sh", "-c", f"echo {n}; exit {n}", cwd=tmp_path) for n in range(20)))
        assert [(each.stdout, each.exit_code) for each in done] == [(b"%d\n" % n, n) for n in range(20)]

    async def test_what_cannot_be_started_is_an_error(self, tmp_path: Path) -> None:
        """No such program, no right to run it, no such directory, an impossible argument: each one line."""
        (tmp_path / "plain.txt").write_text("#!/bin/sh\n")
        with pytest.raises(CommandError, match=r"^cannot run 'no-such-program': No such file or directory$"):
            await run("no-such-program", cwd=tmp_path)
        with pytest.raises(CommandError, match=r"^cannot run './plain.txt': Permission denied$"):
            await run("./plain.txt", cwd=tmp_path)
        with pytest.raises(CommandError, match="No such file or directory"):
            await run("true", cwd=tmp_path / "none")
        with pytest.raises(CommandError, match="embedded null byte"):
            await run("echo", "a\0b", cwd=tmp_path)

    async def test_signals_have_their_usual_effect(self, tmp_path: Path) -> None:
        """Python ignores SIGPIPE; inherited by `yes`, that would make a message of every closed pipe."""
        done = await run("sh", "-c", "yes | head -n 1", cwd=tmp_path)
        assert (done.stdout, done.stderr) == (b"y\n", b"")


class TestEnvironment:
    """What a command gets to see."""

    async def test_it_is_small_and_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What the operator exported does not reach the candidate."""
        monkeypatch.setenv("SECRET_TOKEN", "x")
        done = await run("env", cwd=tmp_path, env={"EXTRA": "1"})
        lines = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
        assert set(lines) == {"PATH", "HOME", "LANG", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "EXTRA"}
        assert lines["HOME"] == str(tmp_path)

    async def test_python3_is_the_interpreter_that_runs_evalbus(self, tmp_path: Path) -> None:
        """Also when the virtual environment was never activated."""
        done = await run("python3", "-c", "import sys; print(sys.prefix)", cwd=tmp_path)
        assert done.stdout.decode().strip() == sys.prefix

    def test_placeholders_are_replaced_and_other_braces_kept(self) -> None:
        """Arguments may hold JSON; what is put in is not looked at again."""
        assert fill(["{id}", 'x={a} {"id": 1}', "{b}{id}"], {"id": "7", "a": "{id}"}) == [
            "7",
            'x={id} {"id": 1}',
            "{b}7",
        ]
        assert fill(["{id}"], {}) == ["{id}"]

    def test_what_is_named_wins(self, tmp_path: Path) -> None:
        """A suite may need another language or home."""
        assert clean_environment(tmp_path, {"LANG": "de_DE.UTF-8"})["LANG"] == "de_DE.UTF-8"


class TestLimits:
    """Each limit ends the command, and is told from the others."""

    async def test_wall_time(self, tmp_path: Path) -> None:
        """What was written until then is kept."""
        done = await timed_out_after_it_began("echo begun; touch begun; sleep 600", tmp_path)
        assert (done.timed_out, done.exit_code, done.stdout) == (True, None, b"begun\n")
        assert re.fullmatch(r"timed out after \d+\.\d s", done.outcome)

    async def test_cpu_time(self, tmp_path: Path) -> None:
        """Told apart from wall time: waiting for a slow network is not computing."""
        done = await run(sys.executable, "-c", "while True: pass", cwd=tmp_path, limits=Limits(cpu=0.5))
        assert (done.timed_out, done.outcome) == (False, "killed by SIGXCPU: over its limit of CPU time")

    async def test_memory(self, tmp_path: Path) -> None:
        """The command fails, the machine does not."""
        done = await run(sys.executable, "-c", "bytearray(10**9)", cwd=tmp_path, limits=Limits(memory=3 * 10**8))
        assert (done.exit_code, done.last_line) == (1, "MemoryError")

    async def test_size_of_a_file(self, tmp_path: Path) -> None:
        """A run cannot fill the disk with one file."""
        done = await run("sh", "-c", "head -c 9000 /dev/zero > big", cwd=tmp_path, limits=Limits(file=4096))
        assert not done.ok
        assert (tmp_path / "big").stat().st_size <= 4096

    async def test_open_files(self, tmp_path: Path) -> None:
        """One that never closes what it opens fails by itself, before the machine runs out."""
        script = "held = [open('/dev/null') for _ in range(100)]"
        assert (await run(sys.executable, "-c", script, cwd=tmp_path, limits=Limits(open_files=256))).ok
        done = await run(sys.executable, "-c", script, cwd=tmp_path, limits=Limits(open_files=64))
        assert (done.exit_code, "Too many open files" in done.last_line) == (1, True)

    @pytest.mark.parametrize("stream", ["", ">&2"])
    async def test_output(self, tmp_path: Path, stream: str) -> None:
        """A command that prints for ever is killed, not read for ever."""
        done = await run("sh", "-c", f"yes {stream}", cwd=tmp_path, limits=Limits(output=10_000))
        assert (done.truncated, done.timed_out, done.ok) == (True, False, False)
        assert len(done.stdout) + len(done.stderr) == 10_000

    @pytest.mark.skipif(os.geteuid() == 0, reason="the kernel does not limit root's processes")
    async def test_processes(self, tmp_path: Path) -> None:
        """The limit is counted from those that the user has already."""
        script = "for n in 1 2 3 4 5 6 7 8 9; do sleep 5 & done; wait"
        done = await run("sh", "-c", script, cwd=tmp_path, limits=Limits(processes=4))
        assert b"fork" in done.stderr.lower()

    async def test_a_limit_is_never_raised(self, tmp_path: Path) -> None:
        """A worker that was started with less cannot give more, and need not fail for it."""
        much = Limits(memory=2**62, file=2**62, cpu=10**8, open_files=2**40)
        assert (await run("true", cwd=tmp_path, limits=much)).ok


def descriptors() -> set[tuple[str, str]]:
    """The open descriptors of this process, with what they are: a number alone is soon another's."""
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that looks
            found.add((one.name, str(one.readlink())))
    return found


@linux
class TestNothingIsLeft:
    """Processes, zombies, descriptors."""

    async def test_a_timeout_kills_the_children_too(self, tmp_path: Path) -> None:
        """The shell is killed; `sleep` would go on as an orphan that nobody ends."""
        done = await timed_out_after_it_began("sleep 600 & echo $! > child; touch begun; wait", tmp_path)
        assert done.timed_out
        child = number_in(tmp_path / "child")
        assert child is not None
        until(lambda: not alive(child), "the grandchild is gone")

    async def test_what_is_left_in_the_background_ends_with_the_command(self, tmp_path: Path) -> None:
        """It also holds the output open: its end must not be waited for."""
        done = await run("sh", "-c", "sleep 600 & echo $! > child; echo done", cwd=tmp_path)
        assert (done.ok, done.stdout) == (True, b"done\n")
        child = number_in(tmp_path / "child")
        assert child is not None
        until(lambda: not alive(child), "the background process is gone")

    async def test_what_left_the_session_is_found_as_an_orphan(self, tmp_path: Path) -> None:
        """`setsid` leaves the group that is killed, with the output still in its hands."""
        script = "setsid sh -c 'echo $$ > escaped; exec sleep 600' & while [ ! -s escaped ]; do sleep 0.01; done"
        assert (await run("sh", "-c", script, cwd=tmp_path)).ok
        escaped = number_in(tmp_path / "escaped")
        assert escaped is not None
        until(lambda: not alive(escaped), "the escaped process is gone")

    async def test_cancelling_kills_the_command_and_waits_for_it(self, tmp_path: Path) -> None:
        """When the cancelled call comes back, the workspace is at rest: it can be packed or removed."""
        task = asyncio.ensure_future(run("sh", "-c", "echo $$ > pid; sleep 600; exit", cwd=tmp_path))
        await until_async(lambda: number_in(tmp_path / "pid"), "the command has begun")
        pid = number_in(tmp_path / "pid")
        assert pid is not None
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(pid)

    async def test_a_second_cancellation_does_not_cut_the_wait_short(self, tmp_path: Path) -> None:
        """An impatient caller cancels twice, and must not find the command alive."""
        task = asyncio.ensure_future(run("sh", "-c", "echo $$ > pid; sleep 600; exit", cwd=tmp_path))
        await until_async(lambda: number_in(tmp_path / "pid"), "the command has begun")
        pid = number_in(tmp_path / "pid")
        assert pid is not None
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not alive(pid)

    async def test_no_descriptor_and_no_zombie(self, tmp_path: Path) -> None:
        """A worker runs for days. What an earlier test had open, and lets go of meanwhile, does not count."""
        await run("true", cwd=tmp_path)
        gc.collect()
        before = descriptors()
        for _ in range(5):
            await run("true", cwd=tmp_path)
            await run("sleep", "600", cwd=tmp_path, timeout=0.01)
            with pytest.raises(CommandError):
                await run("no-such-program", cwd=tmp_path)
        gc.collect()
        assert descriptors() - before == set()
        of_nursery = Path(f"/proc/{nursery_pid()}/task/{nursery_pid()}/children")
        until(lambda: not of_nursery.read_text().split(), "every child is reaped")

    def test_a_worker_killed_with_9_takes_its_commands_with_it(self, tmp_path: Path) -> None:
        """Nobody is left to end them but the nursery, which sees its sockets close: grandchildren included."""
        worker = subprocess.Popen(
            [
                sys.executable,
                "-c",
                "import asyncio, sys\n"
                "from pathlib import Path\n"
                "from workers.processes.commands import run_limited\n"
                "script = 'sleep 600 & echo $! > child; echo $$ > pid; wait'\n"
                "asyncio.run(run_limited(['sh', '-c', script], cwd=Path(sys.argv[1]), timeout=600))\n",
                str(tmp_path),
            ],
            cwd=Path(__file__).parents[1],
        )
        try:
            until(lambda: number_in(tmp_path / "pid"), "the command has begun")
        finally:
            worker.kill()
            worker.wait()
        for name in ("pid", "child"):
            pid = number_in(tmp_path / name)
            assert pid is not None
            until(lambda pid=pid: not alive(pid), f"{name} is gone")  # type: ignore[misc]


@linux
class TestNursery:
    """What happens to the process that starts commands."""

    async def test_a_signal_to_the_whole_service_does_not_end_commands(self, tmp_path: Path) -> None:
        """A stopping service signals every process; a command's death would be read as its answer."""
        await run("true", cwd=tmp_path)
        task = asyncio.ensure_future(
            run("sh", "-c", "echo $$ > pid; while [ ! -e go ]; do sleep 0.01; done", cwd=tmp_path)
        )
        await until_async(lambda: number_in(tmp_path / "pid"), "the command has begun")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(nursery_pid(), number)
        (tmp_path / "go").touch()
        assert (await task).ok

    async def test_its_death_ends_the_command_and_the_next_one_gets_another(self, tmp_path: Path) -> None:
        """The memory killer may pick it. No answer is an error, not a verdict."""
        task = asyncio.ensure_future(run("sh", "-c", "echo $$ > pid; exec sleep 600", cwd=tmp_path))
        await until_async(lambda: number_in(tmp_path / "pid"), "the command has begun")
        pid = number_in(tmp_path / "pid")
        assert pid is not None
        os.kill(nursery_pid(), signal.SIGKILL)
        with pytest.raises(CommandError, match="the process that starts commands died"):
            await task
        until(lambda: not alive(pid), "the kernel has killed the command")
        assert (await run("echo", "again", cwd=tmp_path)).stdout == b"again\n"

    async def test_each_event_loop_may_use_it(self, tmp_path: Path) -> None:
        """It belongs to the process; nothing of it belongs to a loop."""
        await run("true", cwd=tmp_path)
        first = nursery_pid()

        def in_another_loop() -> Finished:
            return asyncio.run(run("echo", "there", cwd=tmp_path))

        assert (await asyncio.to_thread(in_another_loop)).stdout == b"there\n"
        assert nursery_pid() == first
