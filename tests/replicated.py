"""A primary with replicas and the Sentinels that watch them, on loopback: what is killed here is replaced in a second.

What is only slow is not: a machine that does much else would see failovers that no test has asked for.

with watched() as set_:
    bus = … set_.url …
    set_.kill_primary()
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import redis

from bus.launch import server_binary
from tests.servers import Kind, RealServer, free_port, running, wait_for

__all__ = ["NAME", "Watched", "link_is_up", "offset", "watched"]

NAME = "queue"
_SILENT_MS = 500  # after which a Sentinel takes the primary for dead, once a test has killed it
_SLOW_MS = 60_000  # and before


@dataclass(slots=True)
class Watched:
    """See the module's text."""

    servers: list[RealServer]
    """The first was the primary when it began."""
    sentinels: list[int]
    """Their ports."""

    @property
    def url(self) -> str:
        """For `--url`."""
        return f"sentinel://{','.join(f'127.0.0.1:{port}' for port in self.sentinels)}/{NAME}"

    @property
    def primary(self) -> RealServer:
        """As the Sentinels have it now."""
        port = self._said()
        return next(server for server in self.servers if server.target.port == port)

    def kill_primary(self) -> RealServer:
        """SIGKILL; returns when another one is the primary, which is answered."""
        dead = self.primary
        dead.process.kill()
        dead.process.wait()
        self._take_for_dead_after(_SILENT_MS)
        wait_for(lambda: self._said() != dead.target.port, "the Sentinels to name another primary", timeout=40)
        now = self.primary
        # Not before the Sentinel has ended: it lets the clients of the new primary go once more.
        wait_for(lambda: _role(now) == "master" and self._is_settled(), "a replica to be promoted", timeout=40)
        self._take_for_dead_after(_SLOW_MS)
        return now

    def _take_for_dead_after(self, silent_ms: int) -> None:
        for port in self.sentinels:
            with redis.Redis(port=port) as client:
                client.execute_command("SENTINEL", "SET", NAME, "down-after-milliseconds", silent_ms)

    def _is_settled(self) -> bool:
        with redis.Redis(port=self.sentinels[0]) as client:
            said = client.execute_command("SENTINEL", "MASTER", NAME)
        facts = dict(zip(said[::2], said[1::2], strict=True)) if isinstance(said, list) else said
        return _text(facts)["flags"] == "master"

    def _said(self) -> int:
        with redis.Redis(port=self.sentinels[0]) as client:
            said = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return int(said[1])


@contextlib.contextmanager
def watched(replicas: int = 1, settings: dict[str, str] | None = None) -> Iterator[Watched]:
    """`settings`: of the servers. One Sentinel that decides alone, and one that only knows."""
    with contextlib.ExitStack() as stack:
        options = {"repl-diskless-sync-delay": "0", **(settings or {})}
        primary = stack.enter_context(running(Kind.VALKEY9, options, tcp=True))
        following = {"replicaof": f"127.0.0.1 {primary.target.port}", **options}
        others = [stack.enter_context(running(Kind.VALKEY9, following, tcp=True)) for _ in range(replicas)]
        for one in others:
            wait_for(lambda one=one: link_is_up(one), "a replica to follow")  # type: ignore[misc]
        ports = [stack.enter_context(_sentinel(primary)) for _ in range(2)]
        for port in ports:
            wait_for(lambda port=port: _knows(port) == replicas, "a Sentinel to know the replicas")  # type: ignore[misc]
        yield Watched([primary, *others], ports)


@contextlib.contextmanager
def _sentinel(primary: RealServer) -> Iterator[int]:
    port = free_port()
    folder = primary.directory / f"sentinel-{port}"
    folder.mkdir()
    (folder / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\nlogfile sentinel.log\n"
        f"sentinel monitor {NAME} 127.0.0.1 {primary.target.port} 1\n"
        f"sentinel down-after-milliseconds {NAME} {_SLOW_MS}\n"
        f"sentinel failover-timeout {NAME} 3000\n"
    )
    process = subprocess.Popen(
        [Path(str(server_binary())), folder / "sentinel.conf", "--sentinel"], cwd=folder, stdout=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: _knows(port) >= 0, "a Sentinel to answer")
        yield port
    finally:
        process.kill()
        process.wait()


def _knows(port: int) -> int:
    """How many replicas a Sentinel knows; -1 while it does not answer."""
    try:
        with redis.Redis(port=port) as client:
            return len(client.execute_command("SENTINEL", "REPLICAS", NAME))
    except redis.ConnectionError:
        return -1


def _text(facts: Mapping[bytes | str, bytes | str]) -> dict[str, str]:
    def text(value: bytes | str) -> str:
        return value.decode() if isinstance(value, bytes) else value

    return {text(name): text(value) for name, value in facts.items()}


def _role(server: RealServer) -> str:
    with contextlib.suppress(redis.ConnectionError), server.client() as client:  # it lets go of all when it is promoted
        return str(client.info("replication")["role"])
    return ""


def offset(server: RealServer) -> int:
    """How far it is in the stream of writes."""
    with server.client() as client:
        facts = client.info("replication")
    return int(facts["master_repl_offset"] if facts["role"] == "master" else facts["slave_repl_offset"])


def link_is_up(replica: RealServer) -> bool:
    """Whether it follows its primary."""
    with replica.client() as client:
        return str(client.info("replication").get("master_link_status")) == "up"
