"""A place for one rehearsal: a directory and a private server of its own, `evalbus` commands, processes to kill.

Nothing here looks into evalbus' processes. What a rehearsal knows it has from the lab, which counts what really came,
and from what any user can ask for: the exit code, `--json`, `evalbus export`, and the batch's rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from bus.connection import Endpoint
from bus.port import BatchInfo, Counters, IntentRow, RunRow
from bus.redis_bus import RedisBus
from bus.types import BatchId
from workers.runtime import SystemRuntime

HERE = Path(__file__).parent
SUITES = HERE / "suites"
PATIENCE = 300.0  # seconds; a command that takes so long has failed


class Violated(Exception):
    """It cannot go on: what the rest would be counted on does not hold."""


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str
    seconds: float


@dataclass(frozen=True)
class Books:
    """A batch as its own server tells it."""

    info: BatchInfo
    counters: Counters
    rows: list[RunRow]
    effects: list[IntentRow]


@dataclass
class Run:
    """An `evalbus run` that is under way."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    began: float = field(default_factory=time.monotonic)

    @property
    def goes_on(self) -> bool:
        return self.process.poll() is None

    def workers(self) -> list[int]:
        """The worker processes that this very command has started, by /proc."""
        parents, found = {self.process.pid}, []
        for _ in range(3):  # run → nursery → worker
            for place in Path("/proc").glob("[0-9]*"):
                try:
                    parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                    words = (place / "cmdline").read_text()
                except OSError:
                    continue
                pid = int(place.name)
                if parent in parents and pid not in parents:
                    parents.add(pid)
                    if '"role": "worker"' in words:
                        found.append(pid)
        return sorted(found)

    def kill_one(self, choose: Callable[[list[int]], int]) -> bool:
        """SIGKILL to one of its workers; False when there is none."""
        if not (alive := self.workers()):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(choose(alive), signal.SIGKILL)
        return True

    def end(self, patience: float = PATIENCE) -> Ended:
        """Wait for it. Raises Violated when it does not end."""
        try:
            code = self.process.wait(max(0.0, patience - (time.monotonic() - self.began)))
        except subprocess.TimeoutExpired:
            raise Violated(f"evalbus has not ended after {patience:g} s\n{self.err.read_text()[-2000:]}") from None
        return Ended(code, self.out.read_text(), self.err.read_text(), time.monotonic() - self.began)


@dataclass
class Place:
    """See the module's text."""

    root: Path
    runs: list[Run] = field(default_factory=list)

    kept: ClassVar[bool] = False
    """Whether directories outlive their rehearsal, for whoever wants to look."""

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> Iterator[Place]:
        """A new one, which is removed with all its processes."""
        place = cls(Path(tempfile.mkdtemp(prefix="evalbus-rehearsal-")).resolve())
        try:
            yield place
        finally:
            for run in place.runs:
                run.process.kill()
                run.process.wait()
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                place.call("server", "stop")
            if cls.kept:
                print(f"kept: {place.root}", file=sys.stderr)
            else:
                shutil.rmtree(place.root, ignore_errors=True)

    @property
    def home(self) -> Path:
        return self.root / "home"

    def start(self, suite: Path, batch: str, *options: object, workers: int = 2, **env: str) -> Run:
        """`evalbus run SUITE`, in the background; `--json` goes to BATCH.json."""
        words = ["run", suite, "--batch", batch, "--workers", workers, "--scorers", 1, "--json", self._json(batch)]
        return self._begin(batch, (*words, *options), env)

    def role(self, name: str, suite: Path, *options: object, **env: str) -> Run:
        """`evalbus worker` (or another role) beside it, until it is ended."""
        return self._begin(name, (name, "--suite", suite, *options), env)

    def _begin(self, name: str, words: tuple[object, ...], env: dict[str, str]) -> Run:
        out, err = self.root / f"{name}.out", self.root / f"{name}.err"
        with out.open("wb") as out_file, err.open("wb") as err_file:
            process = subprocess.Popen(
                [sys.executable, "-m", "workers.cli", *map(str, words)],
                cwd=self.root, env=self._environment(env), stdin=subprocess.DEVNULL, stdout=out_file, stderr=err_file,
            )  # fmt: skip
        run = Run(process, out, err)
        self.runs.append(run)
        return run

    def call(self, *words: object) -> Ended:
        """Another `evalbus` command, to its end."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "workers.cli", *map(str, words)],
            cwd=self.root, env=self._environment({}), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def result(self, batch: str) -> dict:
        """What `--json` wrote. Raises Violated when there is none."""
        try:
            return json.loads(self._json(batch).read_text())
        except FileNotFoundError:
            said = (self.root / f"{batch}.err").read_text()[-2000:]
            raise Violated(f"the batch has no result\n{said}") from None

    def history(self, batch: str) -> list[dict]:
        """The lines of `evalbus export`."""
        file = self.root / f"{batch}.jsonl"
        done = self.call("export", batch, file)
        if done.code:
            raise Violated(f"no export: {done.err}")
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    def books(self, batch: str) -> Books:
        """Counters, rows and effects."""
        return asyncio.run(self._books(BatchId(batch)))

    async def _books(self, batch: BatchId) -> Books:
        endpoint = await asyncio.to_thread(Endpoint.from_options, None, self.home)
        bus = RedisBus(endpoint, SystemRuntime())
        try:
            info = await bus.info(batch)
            if info is None:
                raise Violated(f"there is no batch {batch}")
            runs = await bus.run_ids(batch)
            effects = [effect for run in runs for effect in await bus.effects(batch, run)]
            return Books(info, await bus.counters(batch), await bus.rows(batch, runs), effects)
        finally:
            await bus.aclose()
            await endpoint.aclose()

    def _json(self, batch: str) -> Path:
        return self.root / f"{batch}.json"

    def _environment(self, own: dict[str, str]) -> dict[str, str]:
        """This process's, without what would send a rehearsal to a real endpoint or to another server."""
        foreign = ("EVALBUS_", "OPENAI_", "ANTHROPIC_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        return inherited | {"EVALBUS_HOME": str(self.home), "REHEARSAL_PLACE": str(self.root)} | own


def until(condition: Callable[[], object], what: str, patience: float = 60.0) -> None:
    """Wait for a condition. Raises Violated when it does not come."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise Violated(f"waited {patience:g} s in vain for {what}")
        time.sleep(0.02)
