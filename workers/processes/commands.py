"""Running one command within limits: time, memory, processes, output.

The command may loop, fork, fill the disk, print for ever, close its output, or leave a child behind that
holds it open. Whatever it does, `run_limited` comes back, with nothing of the command's left: no process, no
zombie, no descriptor. Cancelling it kills the command and waits until it is gone. `workers.processes.nursery` tells how
commands are started and ended.

The environment is small and the same everywhere: a result must not depend on what the operator exported.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workers.processes import nursery, nursery_client
from workers.processes.machine import machine_error
from workers.processes.nursery_client import CommandError
from workers.redaction import hide_variable, redacted

__all__ = ["CommandError", "Finished", "Limits", "clean_environment", "fill", "passed_on", "run_limited"]

_LINGER: Final = 1.0
"""Seconds that outputs may stay open once the command is gone: held by something that left its group."""

_DEATH: Final = 10.0
"""Seconds within which a killed process goes, unless it hangs in the kernel (a dead network disk)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a command may use. `cpu` in seconds, `memory`, `output` and `file` in bytes.

    `cpu`, `memory` (of addresses), `file` (size of one file) and `open_files` hold for each of its processes.
    `processes` is how many more the user may have than at the start; the kernel does not apply it to root. `output`
    holds for standard output and error each; a command that writes more is killed.
    """

    cpu: float = 30.0
    memory: int = 10**9
    processes: int = 64
    output: int = 10**7
    file: int = 10**8
    open_files: int = 256


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended.

    Either `exit_code`, or the number of the `signal` that killed it. `timed_out`, `truncated`: it was killed
    for its time, or for writing more than `Limits.output`; what it wrote until then is kept.
    """

    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    timed_out: bool
    truncated: bool
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with 0."""
        return self.exit_code == 0

    @property
    def outcome(self) -> str:
        """How it ended, as a clause: "exit code 3", "timed out after 60.0 s"."""
        if self.timed_out:
            return f"timed out after {self.seconds:.1f} s"
        if self.truncated:
            return "killed: it wrote more than its limit of output"
        if self.signal is None:
            return f"exit code {self.exit_code}"
        names = {
            signal.SIGXCPU: "SIGXCPU: over its limit of CPU time",
            signal.SIGXFSZ: "SIGXFSZ: a file too large",
        }
        with contextlib.suppress(ValueError):
            number = signal.Signals(self.signal)
            return f"killed by {names.get(number, number.name)}"
        return f"killed by signal {self.signal}"

    @property
    def last_line(self) -> str:
        """The last line of its error output that holds anything, at most 300 characters; may be empty."""
        # Secrets first: of one that is cut in two, nobody would know the beginning.
        lines = redacted(self.stderr.decode(errors="replace")).strip().splitlines()
        return " ".join(lines[-1].split())[:300] if lines else ""

    @property
    def told(self) -> str:
        """How it ended, and its last line where there is one."""
        return f"{self.outcome}: {self.last_line}" if self.last_line else self.outcome


def clean_environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a command: a small fixed one, and what `extra` names.

    The interpreter that runs evalbus comes first in `PATH`, so that `python3` is the same program whether the
    virtual environment was activated or not.
    """
    path = os.environ.get("PATH", os.defpath)
    return {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), path]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        **(extra or {}),
    }


def passed_on(names: Sequence[str]) -> dict[str, str]:
    """Those of the named environment variables that are set here; from now on they are kept out of what is written."""
    for name in names:
        hide_variable(name)
    return {name: os.environ[name] for name in names if name in os.environ}


def fill(argv: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Replace `{name}` in arguments, for the names in `values`; other braces stay as they are."""
    known = re.compile("|".join(re.escape(f"{{{name}}}") for name in values) or r"(?!)")
    return [known.sub(lambda match: values[match[0][1:-1]], part) for part in argv]


async def run_limited(
    argv: Sequence[str],
    *,
    cwd: Path,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    timeout: float,  # noqa: ASYNC109 - a limit of the command like the others, and told apart in the result
    limits: Limits | None = None,
) -> Finished:
    """Run a command in `cwd` and wait for its end, at most `timeout` seconds of wall time.

    `env` is added to `clean_environment(cwd)`; `limits` are the defaults when left out. Raises `CommandError`
    when it cannot be started (no such program), and `MachineError` when none can be started here. A command that ran
    and failed is a `Finished`, not an error.
    """
    limits, cwd = limits or Limits(), cwd.absolute()
    started = time.monotonic()
    with contextlib.ExitStack() as ours:
        with _of_this_machine():
            status, far = socket.socketpair()
        ours.enter_context(status)

        def stop() -> None:
            with contextlib.suppress(OSError):  # the nursery has hung up already
                status.shutdown(socket.SHUT_WR)

        with _of_this_machine(), contextlib.ExitStack() as theirs:
            theirs.enter_context(far)
            # A file and not a pipe: the command may read it when it likes, or never.
            source = theirs.enter_context(tempfile.TemporaryFile())
            source.write(stdin)
            source.seek(0)
            out, err = (_Output(limits.output, stop, ours, theirs) for _ in range(2))
            request = nursery.Request(
                argv=list(argv),
                cwd=str(cwd),
                env=clean_environment(cwd, env),
                cpu=limits.cpu,
                memory=limits.memory,
                processes=limits.processes,
                open_files=limits.open_files,
                file=limits.file,
            )
            nursery_client.start(request, [source.fileno(), out.far, err.far, far.fileno()])
        answer = _Reader(status.fileno(), 2**16, stop)
        ours.callback(answer.close)
        timed_out = False
        try:
            async with asyncio.timeout(timeout):
                await answer.ended.wait()
        except TimeoutError:
            timed_out = True
        finally:
            stop()
            await _uninterrupted(_gone(answer, out, err))
        code = _exit_code(bytes(answer.data), argv)
    return Finished(
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=bytes(out.data),
        stderr=bytes(err.data),
        timed_out=timed_out and code < 0,  # it may have ended by itself at the last moment
        truncated=out.full or err.full,
        seconds=time.monotonic() - started,
    )


@contextlib.contextmanager
def _of_this_machine() -> Iterator[None]:
    """Before a command is started, nothing can fail by its doing."""
    try:
        yield
    except OSError as error:
        raise machine_error(f"no command can be started: {error.strerror or error}") from error


async def _gone(answer: _Reader, *outputs: _Reader) -> None:
    """Wait until a command that was told to stop is gone, and its outputs are read."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DEATH):
            await answer.ended.wait()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            for output in outputs:
                await output.ended.wait()


async def _uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Await something to its end even when cancelled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


def _exit_code(answer: bytes, argv: Sequence[str]) -> int:
    lines = answer.splitlines()
    if not lines:
        raise CommandError(f"cannot run {argv[0]!r}: the process that starts commands died, or cannot kill it")
    first: nursery.Answer = json.loads(lines[0])
    if first.get("machine"):
        raise machine_error(f"no command can be started: {first['failed']}")
    if "failed" in first:
        raise CommandError(f"cannot run {argv[0]!r}: {first['failed']}")
    return first["exit"]


class _Reader:
    """Collects what arrives at a descriptor until its end; beyond `cap` bytes it is `full` and overflows."""

    def __init__(self, fd: int, cap: int, overflow: Callable[[], None]) -> None:
        self.data = bytearray()
        self.full = False
        self.ended = asyncio.Event()
        self._fd, self._cap, self._overflow = fd, cap, overflow
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._ready)

    def _ready(self) -> None:
        try:
            piece = os.read(self._fd, 2**16)
        except BlockingIOError:
            return
        except OSError:  # a socket whose other end was killed says so with an error
            piece = b""
        if not piece:
            self.close()
            return
        self.full = self.full or len(piece) > self._cap - len(self.data)
        self.data += piece[: self._cap - len(self.data)]
        if self.full:
            self._overflow()

    def close(self) -> None:
        """Stop reading. The descriptor is its owner's to close."""
        if not self.ended.is_set():
            self._loop.remove_reader(self._fd)
            self.ended.set()


class _Output(_Reader):
    """A pipe: what the command writes to `far`, read at this end."""

    def __init__(
        self,
        cap: int,
        overflow: Callable[[], None],
        ours: contextlib.ExitStack,
        theirs: contextlib.ExitStack,
    ) -> None:
        near, self.far = os.pipe()
        ours.callback(os.close, near)
        theirs.callback(os.close, self.far)
        super().__init__(near, cap, overflow)
        ours.callback(self.close)
