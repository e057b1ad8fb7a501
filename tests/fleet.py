"""Real `evalbus` processes for tests: a suite whose progress the test controls, commands, and a look at what is alive.

    with Stage.opened(tmp_path) as stage:
        suite = stage.suite([case("a", gate="go"), case("b")])
        command = stage.start("run", suite, "--workers", 2, "--batch", "b")
        async with stage.watch("b") as batch:
            await eventually(lambda: batch.running("a#1"), "a#1 to run")
            stage.roles(Role.WORKER)[0].signal(signal.SIGKILL)
            stage.open_gate("go")
        assert (await command.end()).code == 0

A gate is a file: a case that names one waits in its solver (or scorer) until the test has made it, so a process dies
at the very moment that the test is about, however slow the machine is. Every process of a stage has its working
directory under the stage's root; that is how the stage finds what is alive, and fails a test that leaves any behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bus.connection import Endpoint
from bus.history import read_history
from bus.port import Counters, Group, RunRow, RunState
from bus.recorded import Part, Recorded
from bus.redis_bus import RedisBus
from bus.types import BatchId, RunId
from tests.suites import write_suite
from workers.processes.role_options import Role, RoleOptions
from workers.runtime import SystemRuntime

__all__ = [
    "Command",
    "Done",
    "Process",
    "Stage",
    "Watch",
    "case",
    "commits",
    "end_below",
    "eventually",
    "processes_below",
    "read_export",
]

T = TypeVar("T")

_PATIENCE = 60.0  # seconds; what takes so long has failed, also on a machine that does much else
_LOOK_EVERY = 0.02
_ENDING = 60.0  # seconds for what is left of a stage to end by itself: a fleet's grace is 10

_CODE = '''\
"""Answers with its input; before that it does what the case's metadata say."""

import asyncio
import os
from pathlib import Path

GATES = Path(os.environ.get("EVALBUS_TEST_GATES", "."))


async def passed(gate):
    while not (GATES / gate).exists():
        await asyncio.sleep(0.01)


async def act(what):
    if what == "raises":
        raise ValueError("no such tool")
    if what == "sleeps":
        await asyncio.sleep(3600)
    if what == "dies":
        os._exit(3)
    if what and what.startswith("exits "):
        os._exit(int(what.removeprefix("exits ")))
    if what == "interrupts":
        raise KeyboardInterrupt
    if what == "blocks":
        while True:
            pass
    if what == "forks":
        child = os.fork()
        if child == 0:
            raise ValueError("both go on from here")
        os.waitpid(child, 0)


async def solve(case, run):
    await run.note("begun")
    if "gate" in case.metadata:
        await passed(case.metadata["gate"].format(gen=run.gen))
    await act(case.metadata.get("solver"))
    return case.input.format(gen=run.gen)


async def score(case, sealed):
    if "score_gate" in case.metadata:
        await passed(case.metadata["score_gate"])
    await act(case.metadata.get("scorer"))
    return sealed.answer == case.target
'''

_TOML = """\
cases = "cases.jsonl"
{fields}
[solver]
python = "agent.py:solve"
[scorer]
kind = "python"
python = "agent.py:score"
timeout = "{scorer_timeout}"
{tables}
"""


def case(name: str, answer: str = "1", target: str = "1", **metadata: str) -> dict[str, Any]:
    """A case as a line of the data. Metadata:

    `gate`, `score_gate`  wait for that gate; `{gen}` in the first is the run's generation, as in `answer`
    `solver`, `scorer`    `raises`, `interrupts`, `sleeps` (for an hour), `dies` (with its process), `exits N`
                          (likewise, by that code), `blocks` (its event loop), `forks` (and both go on)
    """
    return {"id": name, "input": answer, "target": target, "metadata": metadata}


@dataclass(frozen=True, slots=True)
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on standard error by which a command refuses. Fails when there is more, or none."""
        lines = [line for line in self.err.splitlines() if line]
        assert len(lines) == 1, self.err
        assert lines[0].startswith("evalbus: "), self.err
        return lines[0].removeprefix("evalbus: ")


@dataclass(frozen=True, slots=True)
class Command:
    """An `evalbus` command that was started; its output goes to files."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    async def end(self) -> Done:
        """Wait until it has ended."""
        await eventually(self._ended, "the command to end")
        return self.done()

    def done(self) -> Done:
        """What it came to. Waits for its end."""
        return Done(self.process.wait(_PATIENCE), self.out.read_text(), self.err.read_text())

    async def _ended(self) -> bool:
        return self.process.poll() is not None


@dataclass(frozen=True, slots=True)
class Process:
    """A process of a stage; `options` when it is a fleet's role."""

    pid: int
    arguments: tuple[str, ...]
    options: RoleOptions | None = None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; no matter if it is gone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def alive(self) -> bool:
        """Whether it is there, and no zombie."""
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False


@dataclass(slots=True)
class Stage:
    """See the module's text. Blanks in `root` are welcome."""

    root: Path
    commands: list[Command] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, root: Path) -> Iterator[Stage]:
        """A stage in `root`. When it closes its commands have ended and the rest ends by itself, or the test fails."""
        stage = cls(root)
        stage.gates.mkdir(parents=True)
        try:
            yield stage
        except BaseException:
            stage._end()
            raise
        running = [command.process.args for command in stage.commands if command.process.poll() is None]
        left = [] if running else stage._outlived()
        stage._end()
        assert not running, f"still running: {running}"
        assert not left, f"left behind: {left}"

    @property
    def home(self) -> Path:
        """EVALBUS_HOME of every command."""
        return self.root / "home"

    @property
    def gates(self) -> Path:
        """Where the gates are."""
        return self.root / "gates"

    def open_gate(self, name: str) -> None:
        """Let those pass who wait for it."""
        (self.gates / name).touch()

    def suite(
        self,
        cases: Iterable[Mapping[str, Any]],
        *,
        directory: str = "suite",
        scorer_timeout: str = "60s",
        gate: str = "",
        **fields: str | int,
    ) -> Path:
        """Write a suite; `fields` are those of suite.toml, `gate` its rules. It has no name but its directory's."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in fields.items()]
        toml = _TOML.format(
            fields="\n".join(lines), scorer_timeout=scorer_timeout, tables=f"[gate]\n{gate}" if gate else ""
        )
        data = "".join(json.dumps(one) + "\n" for one in cases)
        return write_suite(self.root / directory, toml, **{"cases.jsonl": data, "agent.py": _CODE})

    # --- commands ----------------------------------------------------------------------------------------

    def start(
        self,
        *arguments: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
    ) -> Command:
        """Start `evalbus ARGUMENTS` in the stage's root, or in `cwd` below it; `stdout` instead of a file."""
        number = len(self.commands)
        out, err = self.root / f"{number}.out", self.root / f"{number}.err"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("EVALBUS_")}
        own = {"EVALBUS_HOME": str(self.home), "EVALBUS_TEST_GATES": str(self.gates)}
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                [sys.executable, "-m", "workers.cli", *map(str, arguments)],
                cwd=cwd or self.root, env=inherited | own | dict(env or {}), stdin=subprocess.DEVNULL,
                stdout=out_file if stdout is None else stdout, stderr=err_file,
            )  # fmt: skip
        command = Command(process, out, err)
        self.commands.append(command)
        return command

    async def call(self, *arguments: object) -> Done:
        """Start it and wait for its end."""
        return await self.start(*arguments).end()

    def run(self, *arguments: object) -> Done:
        """The same, for fixtures that are not async."""
        return self.start(*arguments).done()

    # --- looking -----------------------------------------------------------------------------------------

    def processes(self) -> list[Process]:
        """Everything alive that works under the stage's root."""
        return processes_below(self.root)

    def roles(self, *roles: Role) -> list[Process]:
        """The processes that `evalbus run` started, of these roles or of all; by name."""
        found = [one for one in self.processes() if one.options is not None]
        wanted = [one for one in found if one.options and (not roles or one.options.role in roles)]
        return sorted(wanted, key=lambda one: one.options.name or "" if one.options else "")

    async def crew(self, count: int) -> list[Process]:
        """All roles, as soon as there are so many: one that holds a run is no sign that the others are up."""

        async def look() -> list[Process] | None:
            return found if len(found := self.roles()) == count else None

        return await eventually(look, f"{count} roles to be up")

    def server(self) -> Process:
        """The embedded server."""
        (found,) = [one for one in self.processes() if one.arguments and "valkey-server" in one.arguments[0]]
        return found

    @contextlib.asynccontextmanager
    async def watch(self, batch: str, url: str | None = None) -> AsyncIterator[Watch]:
        """Look into a batch. While it is open, the embedded server stays up; it may be opened before the batch is."""
        endpoint = await asyncio.to_thread(Endpoint.from_options, url, self.home)
        bus = RedisBus(endpoint, SystemRuntime())
        try:
            yield Watch(bus, BatchId(batch))
        finally:
            await bus.aclose()
            await endpoint.aclose()

    # --- ending ------------------------------------------------------------------------------------------

    def _outlived(self) -> list[Process]:
        deadline = time.monotonic() + _ENDING
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY)
        return left

    def _end(self) -> None:
        for command in self.commands:  # first the starters: they would start their roles anew
            command.process.kill()
            command.process.wait()
        end_below(self.root)


def processes_below(root: Path) -> list[Process]:
    """Everything alive that works there or deeper, but for this process; nothing where there is no /proc."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(place.name) != os.getpid() and (place / "cwd").readlink().is_relative_to(root):
                words = (place / "cmdline").read_bytes().split(b"\0")[:-1]
                found.append(_process(int(place.name), [word.decode() for word in words]))
    return [one for one in found if one.alive]


def end_below(root: Path) -> None:
    """Kill all of them, and what they start meanwhile."""
    deadline = time.monotonic() + _ENDING
    while (left := processes_below(root)) and time.monotonic() < deadline:
        for one in left:
            one.signal(signal.SIGKILL)
        time.sleep(_LOOK_EVERY)


def _process(pid: int, words: Sequence[str]) -> Process:
    options = None
    if "workers.role" in words:
        options = RoleOptions.from_json(words[-1])
    return Process(pid, tuple(words), options)


@dataclass(frozen=True, slots=True)
class Watch:
    """A test's own look into a batch."""

    bus: RedisBus
    batch: BatchId

    async def counters(self) -> Counters | None:
        """The batch's counters; None while it has not been declared."""
        if await self.bus.info(self.batch) is None:
            return None
        return await self.bus.counters(self.batch)

    async def row(self, run: str) -> RunRow | None:
        """A run's row; None while it has not been admitted."""
        rows = await self.bus.rows(self.batch, [RunId(run)])
        return rows[0] if rows else None

    async def held(self, state: RunState = RunState.RUNNING, count: int = 1) -> list[RunRow]:
        """The runs in that state, if they are at least `count`; else none."""
        rows = await self.bus.rows(self.batch, await self.bus.run_ids(self.batch))
        found = [row for row in rows if row.state is state]
        return found if len(found) >= count else []

    async def history(self) -> list[Recorded]:
        """Every entry of the history."""
        return [entry async for entry in read_history(self.bus.link, self.bus.keys(self.batch))]

    async def parts(self, command: str, run: str | None = None) -> list[Part]:
        """What one command's entries consist of, of one run or of all."""
        entries = [entry for entry in await self.history() if entry.command == command]
        return [part for entry in entries if run in (None, entry.envelope.get("run")) for part in entry.parts]

    async def pending(self, group: Group) -> dict[str, str]:
        """Entry → owner, of all that a group has been given and has not acknowledged."""
        stream = self.bus.keys(self.batch).stream(group.stream)
        reply = await self.bus.link.command("XPENDING", stream, group.value, "-", "+", 1000)
        return {entry.decode(): owner.decode() for entry, owner, *_ in reply}


async def eventually(condition: Callable[[], Awaitable[T | None]], what: str) -> T:
    """Wait until `condition` gives something true, and return it; fail, saying `what` did not come."""
    deadline = time.monotonic() + _PATIENCE
    while not (found := await condition()):
        assert time.monotonic() < deadline, f"waited {_PATIENCE:.0f} s in vain for {what}"
        await asyncio.sleep(_LOOK_EVERY)
    return found


# --- exports ----------------------------------------------------------------------------------------------


def read_export(path: Path) -> list[dict[str, Any]]:
    """The lines of an export, the first and the last included."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def commits(lines: Iterable[Mapping[str, Any]], operation: str) -> list[Mapping[str, Any]]:
    """The arguments of one operation's commits, such as `histogram.score`, in order."""
    return [
        line["args"]
        for line in lines
        if "op" in line and line["verb"] == "commit" and f"{line['fence']}.{line['op']}" == operation
    ]
