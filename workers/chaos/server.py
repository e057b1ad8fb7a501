"""A server of our own that dies on demand: killed at any moment, started on what is left of its data.

It listens on a socket beside its data. Nobody restarts it but chaos: its clients know it by a URL, as they would know a
server of the user's, and have to wait until it is back.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.launch import server_binary
from bus.target import Target
from bus.wire import Reply, Wire
from workers.processes.parent_death import die_with_parent

__all__ = ["Process", "Server", "ask", "clock_library"]

_COMING_UP = 20.0  # seconds
_FAKE = "**/faketime/libfaketime.so.1"

_SETTINGS: Mapping[str, str] = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-load-truncated": "yes",
    "auto-aof-rewrite-percentage": "0",  # one file, whose tail can be lost
    "save": '""',
    "maxmemory-policy": "noeviction",
    "dir": ".",
    "logfile": "server.log",
}


def clock_library() -> Path | None:
    """What makes a process believe in another time, where it is installed: Debian's libfaketime."""
    places = (
        place for root in ("/usr/lib", "/usr/lib64", "/usr/local/lib") for place in sorted(Path(root).glob(_FAKE))
    )
    return next(places, None)


async def ask(target: Target, *command: str | bytes | int) -> Reply:
    """One command on a connection of its own. Raises ServerUnreachable, ReplyError."""
    wire = await Wire.open(target.address())
    try:
        return await wire.call(*command)
    finally:
        wire.close()


@dataclass(slots=True)
class Process:
    """A server's process, with the files that it starts from."""

    directory: Path
    target: Target
    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside this process's own."""
    process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start on the data that are there, and wait until it answers. Raises ServerUnreachable."""
        where = (
            {"port": "0", "unixsocket": Path(self.target.path).name}
            if self.target.path
            else {"port": str(self.target.port), "bind": "127.0.0.1"}
        )
        config = self.directory / "server.conf"
        if not config.exists() or self.target.path:  # Sentinels write into those of their servers
            lines = [f"{name} {value}\n" for name, value in {**_SETTINGS, **where, **self.settings}.items()]
            config.write_text("".join(lines))
        await self._spawn()
        deadline = time.monotonic() + _COMING_UP
        while not await self._answers():
            if time.monotonic() > deadline:
                raise ServerUnreachable(f"the server in {self.directory} does not come up (see its server.log)")
            await asyncio.sleep(0.01)

    async def _spawn(self) -> None:
        with (self.directory / "output").open("ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                server_binary(), "server.conf", *self.arguments,
                cwd=self.directory, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out,
                preexec_fn=die_with_parent(signal.SIGKILL), start_new_session=True,
                env={**os.environ, **self.environment},
            )  # fmt: skip

    async def _answers(self) -> bool:
        try:
            return bool(await ask(self.target, "PING"))
        except (ServerUnreachable, ServerUnfit, ReplyError):  # not there, or still loading
            return False

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        if self.process is not None:
            self.process.kill()
            await self.process.wait()
            self.process = None


@dataclass(slots=True)
class Server:
    """See the module's text."""

    process: Process
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Whoever makes it fail holds it until it is well again: two faults at once would be one that nobody planned."""

    @classmethod
    def of(cls, directory: Path, clock: Path | None = None) -> Server:
        """`directory` is made, and holds its socket: its path must be short. `clock`: see `clock_library`."""
        directory.mkdir()
        server = cls(Process(directory, Target(path=str(directory / "s"))))
        if clock is not None:
            server.move_clock(0)
            server.process.environment = {
                "LD_PRELOAD": str(clock),
                "FAKETIME_TIMESTAMP_FILE": str(server._clock_file),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # no machine's does what its wall clock does
            }
        return server

    @property
    def _clock_file(self) -> Path:
        return self.process.directory / "clock"

    @property
    def has_clock(self) -> bool:
        """Whether `move_clock` does anything."""
        return bool(self.process.environment)

    def move_clock(self, seconds: float) -> None:
        """Off by so much from now on."""
        draft = self._clock_file.with_suffix(".new")
        draft.write_text(f"{seconds:+f}s\n")
        draft.replace(self._clock_file)

    @property
    def target(self) -> Target:
        """Where it listens."""
        return self.process.target

    async def lose_tail(self, keep: int) -> int:
        """While it is dead: of the file that it writes to, only the first `keep` bytes are left. Returns the lost."""
        file = self.log_file()
        size = file.stat().st_size
        with file.open("r+b") as open_file:
            open_file.truncate(min(keep, size))
        return max(size - keep, 0)

    def log_file(self) -> Path:
        """The append-only file."""
        (found,) = (self.process.directory / "appendonlydir").glob("*.incr.aof")
        return found
