"""A queue to be hurt: a server of its own, two workers, a client; and what became of its jobs.

Everything is a process group, so that what is killed or stopped is killed or stopped with its children: a machine that
vanishes takes the pool of processes with it. The server keeps its data, and its port, when it is killed and comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bus.launch import server_binary
from workers.benching.crash.adapter import JOBS_FILE, WHO
from workers.processes.parent_death import die_with_parent

__all__ = ["Effect", "Group", "Play", "PlayError", "playing"]

_STARTING = 90.0  # seconds: several queues start at once, on few cores
_ANSWER = 20.0
_LOOK_EVERY = 0.05
_CONFIG = 'bind 127.0.0.1\nport {port}\ndir .\nappendonly yes\nappendfsync everysec\nsave ""\nlogfile server.log\n'


class PlayError(Exception):
    """A part of the play does not do what it must before anything can be observed; one line."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One line of what jobs told."""

    what: str
    """`effect` or `end`."""
    job: str
    who: str
    at: float
    """Seconds, by the machine's clock."""


@dataclass(slots=True)
class Group:
    """A process, its children with it."""

    name: str
    process: asyncio.subprocess.Process

    @property
    def alive(self) -> bool:
        """Whether its first process is there."""
        return self.process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        """Send one to all of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


@dataclass(slots=True)
class Play:
    """See the module's text. Use `playing`."""

    queue: str
    """The adapter's name."""
    directory: Path
    redelivery: float | None
    port: int = 0
    workers: list[Group] = field(default_factory=list)
    _server: Group | None = None
    _client: Group | None = None

    @property
    def url(self) -> str:
        """Of the server."""
        return f"redis://127.0.0.1:{self.port}"

    # --- processes ---------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Start the server, the first time or again on its data."""
        self.port = self.port or _free_port()
        place = self.directory / "server"
        place.mkdir(exist_ok=True)
        (place / "server.conf").write_text(_CONFIG.format(port=self.port))
        process = await asyncio.create_subprocess_exec(
            server_binary(),
            "server.conf",
            cwd=place,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self._server = Group("server", process)
        async with _patience(_STARTING, "the server does not answer"):
            while not await self._answers():
                await asyncio.sleep(_LOOK_EVERY)

    async def kill_server(self) -> None:
        """SIGKILL."""
        assert self._server is not None
        self._server.signal(signal.SIGKILL)
        await self._server.process.wait()

    async def hire(self, number: int = 2) -> None:
        """Start so many workers, and wait until they take jobs."""
        names = [f"w{len(self.workers) + one}" for one in range(number)]
        fresh = [await self._start("work", name) for name in names]
        self.workers += fresh
        await asyncio.gather(*(_ready(one) for one in fresh))

    def worker(self, name: str) -> Group:
        """By its name."""
        return next(one for one in self.workers if one.name == name)

    # --- jobs --------------------------------------------------------------------------------------------------------

    async def put(self, *jobs: str) -> str:
        """Enqueue them: "ok", or "refused …"."""
        return await self._ask(f"put {' '.join(jobs)}")

    async def result(self, job: str) -> str | None:
        """What is stored as its result."""
        answer = await self._ask(f"get {job}")
        return answer.removeprefix("is ") if answer.startswith("is ") else None

    async def recorded(self, job: str) -> str:
        """What the queue has recorded of refusals and of giving up, in its words; empty where it records none."""
        return "" if (answer := await self._ask(f"recorded {job}")) == "none" else answer.removeprefix("is ")

    def told(self, what: str = "effect", jobs: Iterable[str] | None = None) -> list[Effect]:
        """What the jobs told, in order; of some jobs or of all."""
        wanted = None if jobs is None else set(jobs)
        try:
            lines = (self.directory / "jobs.txt").read_text().splitlines()
        except FileNotFoundError:
            return []
        found = [Effect(kind, job, who, float(at)) for kind, job, who, at in map(str.split, lines)]
        return [one for one in found if one.what == what and (wanted is None or one.job in wanted)]

    async def until(self, holds: Callable[[], object], seconds: float) -> bool:
        """Wait for something to become true; False when it has not in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not holds():
            if loop.time() > deadline:
                return False
            await asyncio.sleep(_LOOK_EVERY)
        return True

    async def until_result(self, job: str, wanted: Callable[[str | None], bool], seconds: float) -> str | None:
        """Wait for a result that is wanted; what is stored then, or at the end of the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not wanted(found := await self.result(job)) and loop.time() < deadline:
            await asyncio.sleep(4 * _LOOK_EVERY)
        return found

    # --- the rest ----------------------------------------------------------------------------------------------------

    async def _answers(self) -> bool:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.write(b"PING\r\n")
        answer = await reader.readline()
        writer.close()
        return answer.startswith(b"+PONG")

    async def _start(self, what: str, name: str) -> Group:
        environment: Mapping[str, str] = {
            **os.environ, JOBS_FILE: str(self.directory / "jobs.txt"), WHO: name, "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        written = "default" if self.redelivery is None else f"{self.redelivery:g}"
        with (self.directory / f"{name}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", f"workers.benching.crash.{self.queue}_jobs", what, self.url, written,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, env=environment,
                start_new_session=True, preexec_fn=die_with_parent(signal.SIGKILL),
            )  # fmt: skip
        return Group(name, process)

    async def _ask(self, line: str) -> str:
        if self._client is None:
            self._client = await self._start("client", "client")
            await _ready(self._client)
        stdin, stdout = self._client.process.stdin, self._client.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{line}\n".encode())
        async with _patience(_ANSWER, f"no answer to {line.split(maxsplit=1)[0]}"):
            answer = await stdout.readline()
        if not answer:
            raise PlayError(f"the client ended: {_last_words(self.directory / 'client.log')}")
        return answer.decode().strip()

    async def end(self) -> None:
        """End all that is left: the client first, which may have processes to end itself."""
        if self._client is not None:
            assert self._client.process.stdin is not None
            self._client.process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER):
                    await self._client.process.wait()
        left = [one for one in (self._client, *self.workers, self._server) if one is not None]
        for one in left:
            one.signal(signal.SIGKILL)
        await asyncio.gather(*(one.process.wait() for one in left))


@contextlib.asynccontextmanager
async def playing(queue: str, directory: Path, redelivery: float | None) -> AsyncIterator[Play]:
    """A queue with its server up, and nothing else yet; all of it ends with the block. Raises PlayError."""
    directory.mkdir(parents=True)
    play = Play(queue, directory, redelivery)
    try:
        await play.serve()
        yield play
    finally:
        await play.end()


async def _ready(group: Group) -> None:
    assert group.process.stdout is not None
    async with _patience(_STARTING, f"{group.name} does not come up"):
        while (line := await group.process.stdout.readline()).strip() != b"ready":
            if not line:
                raise PlayError(f"{group.name} ended as it started")


@contextlib.asynccontextmanager
async def _patience(seconds: float, else_told: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise PlayError(f"{else_told} within {seconds:.0f} s") from None


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _last_words(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
