"""A cluster of three primaries with a replica each, on loopback ports, of which one primary matters: the batch's.

A batch is in one hash slot. When the primary that has it dies, its replica stands for election among the other two,
and the dead one, when it comes back, follows whoever took its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bus.errors import ServerUnreachable
from bus.info import parse_info
from bus.target import Target
from bus.wire import Reply
from workers.chaos.server import Process, ask
from workers.chaos.several import free_ports, replication, until

__all__ = ["ClusterSet"]

_PRIMARIES = 3
_SLOTS = 16384
_SILENT = 1_000  # ms, after which the others take a server for dead; they also get to know each other sooner by it
_SLOW = 30_000  # ms, while none was killed: one that is only slow is not replaced
_SETTINGS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": str(_SILENT),
    "repl-diskless-sync-delay": "0",
    "cluster-replica-validity-factor": "0",  # a replica stands for election whatever it has missed
}


@dataclass(slots=True)
class ClusterSet:
    """See the module's text."""

    servers: list[Process]
    """The first three are the primaries when it begins, the others their replicas, in the same order."""
    talk: Sequence[int]
    """The ports over which they talk to each other: ten thousand above the clients', as is usual, may be none."""
    slot: int
    """The batch's."""
    primary: Process
    """Who had its slot when they were last asked; before `start`, nobody in particular."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """See `Server.lock`."""

    @classmethod
    def of(cls, directory: Path, slot: int) -> ClusterSet:
        """Six servers that do not know each other yet."""
        ports = free_ports(4 * _PRIMARIES)
        count = 2 * _PRIMARIES
        servers = []
        for number, (port, talk) in enumerate(zip(ports[:count], ports[count:], strict=True)):
            place = directory / f"c{number}"
            place.mkdir()
            servers.append(Process(place, Target(host="127.0.0.1", port=port), _SETTINGS | {"cluster-port": str(talk)}))
        return cls(servers, ports[count:], slot, servers[0])

    @property
    def url(self) -> str:
        """For `--url`."""
        return f"redis+cluster://{','.join(f'127.0.0.1:{one.target.port}' for one in self.servers)}"

    @property
    def processes(self) -> Sequence[Process]:
        """All that was started."""
        return self.servers

    async def start(self) -> None:
        """Raises ServerUnreachable."""
        await asyncio.gather(*(one.start() for one in self.servers))
        primaries, replicas = self.servers[:_PRIMARIES], self.servers[_PRIMARIES:]
        for number, one in enumerate(primaries):
            first, end = (_SLOTS * at // _PRIMARIES for at in (number, number + 1))
            await ask(one.target, "CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            await ask(one.target, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for one, talk in zip(self.servers[1:], self.talk[1:], strict=True):
            await ask(self.servers[0].target, "CLUSTER", "MEET", "127.0.0.1", one.target.port, talk)
        await until(self._are_acquainted, "the servers of the cluster to know each other")
        for primary, replica in zip(primaries, replicas, strict=True):
            named = await ask(primary.target, "CLUSTER", "MYID")
            await ask(replica.target, "CLUSTER", "REPLICATE", named)
        await until(self._is_whole, "the cluster to be whole")
        await _take_for_dead_after(_SLOW, self.servers)

    async def stop(self) -> None:
        """End them all."""
        for one in self.servers:
            await one.kill()

    async def fail_over(self, away: float) -> None:
        """Kill the primary of the batch; return when its replica has the slot, and the dead one follows that.

        The dead one comes back `away` seconds after it was replaced.
        """
        await until(self._is_whole, "the cluster to be whole")  # it may fail over without us, on a very slow machine
        dead = self.primary
        await dead.kill()
        alive = [one for one in self.servers if one is not dead]
        try:
            await _take_for_dead_after(_SILENT, alive)
            await until(lambda: self._has_left(dead, alive), "a replica to take its primary's place")
            await asyncio.sleep(away)
        finally:
            await dead.start()
        await until(self._is_whole, "the killed one to follow the new primary")
        await _take_for_dead_after(_SLOW, self.servers)

    async def _has_left(self, dead: Process, alive: Sequence[Process]) -> bool:
        """All the others agree on another one, and that their cluster is whole."""
        found = await self._owner(alive)
        if found is dead or not await _all_well(alive):
            return False
        self.primary = found
        return True

    async def _are_acquainted(self) -> bool:
        nodes = [await ask(one.target, "CLUSTER", "NODES") for one in self.servers]
        return all(len(said.splitlines()) == len(self.servers) for said in nodes)

    async def _is_whole(self) -> bool:
        """Three replicas follow, everybody knows of it, and of who has the slot."""
        if not await _all_well(self.servers):
            return False
        facts = [await replication(one) for one in self.servers]
        following = [one for one in facts if one["role"] == "slave" and one.get("master_link_status") == "up"]
        ranges = [await ask(one.target, "CLUSTER", "SLOTS") for one in self.servers]
        known = [sum(len(nodes) - 1 for _, _, *nodes in said) for said in ranges]  # replicas that stand beside a range
        self.primary = await self._owner(self.servers)
        return len(following) == _PRIMARIES and set(known) == {_PRIMARIES}

    async def _owner(self, among: Sequence[Process]) -> Process:
        """Who has the slot, as these see it. Raises ServerUnreachable while they differ."""
        ports = {_port(await ask(one.target, "CLUSTER", "SLOTS"), self.slot) for one in among}
        found = [one for one in self.servers if {one.target.port} == ports]
        if not found:
            raise ServerUnreachable(f"the servers of the cluster do not agree on who has the slot {self.slot}")
        return found[0]


async def _take_for_dead_after(silent: int, servers: Sequence[Process]) -> None:
    for one in servers:
        await ask(one.target, "CONFIG", "SET", "cluster-node-timeout", silent)


async def _all_well(servers: Sequence[Process]) -> bool:
    states = [await ask(one.target, "CLUSTER", "INFO") for one in servers]
    return all(parse_info(said).get("cluster_state") == "ok" for said in states)


def _port(ranges: Reply, slot: int) -> int | None:
    return next((int(nodes[0][1]) for first, last, *nodes in ranges if first <= slot <= last), None)
