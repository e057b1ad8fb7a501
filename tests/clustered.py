"""A cluster of three primaries with a replica each, on loopback: one that is killed is replaced in a second or two.

with clustered() as set_:
    bus = … set_.url …
    set_.kill_primary(set_.owner(slot))
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import redis

from tests.replicated import link_is_up
from tests.servers import Kind, RealServer, free_port, running, wait_for

__all__ = ["Clustered", "clustered"]

_PRIMARIES = 3
_SLOTS = 16384
_SILENT_MS = 1_000  # after which the others take a server for dead; they also get to know each other sooner by it
_SLOW_MS = 30_000  # while none was killed: a busy machine would have failovers that no test has asked for
_SETTINGS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": str(_SILENT_MS),
    "repl-diskless-sync-delay": "0",
    "cluster-replica-validity-factor": "0",  # a replica stands for election whatever it has missed
}


@dataclass(slots=True)
class Clustered:
    """See the module's text. The first three servers were the primaries when it began."""

    servers: list[RealServer]
    dead: list[RealServer] = field(default_factory=list)

    @property
    def url(self) -> str:
        """For `--url`."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{one.target.port}' for one in self.servers)}"

    @property
    def alive(self) -> list[RealServer]:
        """Those that were not killed."""
        return [one for one in self.servers if one not in self.dead]

    def owner(self, slot: int) -> RealServer:
        """Who has a slot, as those see it that are alive; fails while they differ."""
        ports = {_owner(one, slot) for one in self.alive}
        (port,) = ports
        return next(one for one in self.servers if one.target.port == port)

    def kill(self, server: RealServer, slot: int) -> None:
        """SIGKILL; returns when all others see another one with its slot, and the cluster is whole."""
        server.process.kill()
        server.process.wait()
        self.dead.append(server)
        self.take_for_dead_after(_SILENT_MS)

        def replaced() -> bool:
            return all(_is_whole(one) and _owner(one, slot) not in (None, server.target.port) for one in self.alive)

        wait_for(replaced, "a replica to take its primary's place", timeout=60)
        self.take_for_dead_after(_SLOW_MS)

    def take_for_dead_after(self, silent_ms: int) -> None:
        """So long the others wait for the answer of one."""
        for one in self.alive:
            _asked(one, "CONFIG", "SET", "cluster-node-timeout", silent_ms)

    def lose(self, slot: int) -> None:
        """SIGKILL whoever has a slot, and whoever could take it over."""
        asked = next(one for one in self.alive if _owner(one, slot) != one.target.port)
        ranges: Sequence[Any] = _asked(asked, "CLUSTER", "SLOTS")
        ports = {int(node[1]) for first, last, *nodes in ranges if first <= slot <= last for node in nodes}
        for one in [one for one in self.alive if one.target.port in ports]:
            one.process.kill()
            one.process.wait()
            self.dead.append(one)
        self.take_for_dead_after(_SILENT_MS)

    def move(self, slot: int, to: RealServer) -> None:
        """Move a slot with all its keys; returns when every server has heard of it."""
        source = self.owner(slot)
        with source.client() as giving, to.client() as taking:
            ids = {one: _call(client, "CLUSTER", "MYID").decode() for one, client in ((0, giving), (1, taking))}
            _call(taking, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
            _call(giving, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
            while keys := _call(giving, "CLUSTER", "GETKEYSINSLOT", slot, 100):
                _call(giving, "MIGRATE", "127.0.0.1", to.target.port, "", 0, 5000, "KEYS", *keys)
            _call(taking, "CLUSTER", "SETSLOT", slot, "NODE", ids[1])
            _call(giving, "CLUSTER", "SETSLOT", slot, "NODE", ids[1])
        wait_for(lambda: {_owner(one, slot) for one in self.alive} == {to.target.port}, "the move to be known")


@contextlib.contextmanager
def clustered() -> Iterator[Clustered]:
    """Six servers; returns when all see the cluster whole and every replica follows."""
    with contextlib.ExitStack() as stack:
        # Their own talk has a port of its own: ten thousand above the other, as is usual, may be none.
        talk = [free_port() for _ in range(2 * _PRIMARIES)]
        servers = [
            stack.enter_context(running(Kind.VALKEY9, _SETTINGS | {"cluster-port": str(port)}, tcp=True))
            for port in talk
        ]
        primaries, replicas = servers[:_PRIMARIES], servers[_PRIMARIES:]
        for number, one in enumerate(primaries):
            with one.client() as client:
                first, last = (_SLOTS * at // _PRIMARIES for at in (number, number + 1))
                _call(client, "CLUSTER", "ADDSLOTSRANGE", first, last - 1)
                _call(client, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        with servers[0].client() as client:
            for one, port in zip(servers[1:], talk[1:], strict=True):
                _call(client, "CLUSTER", "MEET", "127.0.0.1", one.target.port, port)
        wait_for(lambda: all(_knows(one) == len(servers) for one in servers), "all to know each other", timeout=60)
        for primary, replica in zip(primaries, replicas, strict=True):
            _replicate(replica, primary)
        wait_for(lambda: all(_is_whole(one) for one in servers), "the cluster to be whole", timeout=60)
        wait_for(lambda: all(link_is_up(one) for one in replicas), "the replicas to follow", timeout=60)
        wait_for(lambda: all(_replicas(one) == _PRIMARIES for one in servers), "the replicas to be known", timeout=60)
        cluster = Clustered(servers)
        cluster.take_for_dead_after(_SLOW_MS)
        yield cluster


def _replicate(replica: RealServer, primary: RealServer) -> None:
    with primary.client() as client:
        known = _call(client, "CLUSTER", "MYID")
    with replica.client() as client:
        _call(client, "CLUSTER", "REPLICATE", known)


def _call(client: redis.Redis, *command: object) -> Any:  # noqa: ANN401 - whatever the server says
    """Unparsed: what the client library makes of these replies differs by release."""
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command(*command)  # type: ignore[no-untyped-call]
        return connection.read_response()
    finally:
        client.connection_pool.release(connection)


def _asked(server: RealServer, *command: object) -> Any:  # noqa: ANN401
    with server.client() as client:
        return _call(client, *command)


def _knows(server: RealServer) -> int:
    return len(_asked(server, "CLUSTER", "NODES").splitlines())


def _replicas(server: RealServer) -> int:
    return sum(b"slave" in line.split()[2] for line in _asked(server, "CLUSTER", "NODES").splitlines())


def _is_whole(server: RealServer) -> bool:
    return b"cluster_state:ok" in _asked(server, "CLUSTER", "INFO")


def _owner(server: RealServer, slot: int) -> int | None:
    ranges: Sequence[Any] = _asked(server, "CLUSTER", "SLOTS")
    return next((int(nodes[0][1]) for first, last, *nodes in ranges if first <= slot <= last), None)
