"""A primary, a replica and a Sentinel on loopback ports: what dies here is replaced by what followed it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bus.replies import hash_of
from bus.target import Target
from workers.chaos.server import Process, ask
from workers.chaos.several import free_ports, replication, until

__all__ = ["ServerSet"]

_NAME = "chaos"
_SILENT_MS = 1_000  # after which the Sentinel takes a server for dead


@dataclass(slots=True)
class ServerSet:
    """See the module's text."""

    servers: list[Process]
    sentinel: Process
    primary: Process
    """As the Sentinel had it when it was last asked."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """See `Server.lock`."""

    @classmethod
    def of(cls, directory: Path) -> ServerSet:
        """Two servers; the second follows the first."""

        def place(name: str) -> Path:
            (directory / name).mkdir()
            return directory / name

        first, second, watcher = (Target(host="127.0.0.1", port=port) for port in free_ports(3))
        options = {"repl-diskless-sync-delay": "0"}
        primary = Process(place("a"), first, options)
        replica = Process(place("b"), second, {**options, "replicaof": f"127.0.0.1 {first.port}"})
        folder = place("w")
        (folder / "server.conf").write_text(
            f"port {watcher.port}\nbind 127.0.0.1\ndir .\nlogfile server.log\n"
            f"sentinel monitor {_NAME} 127.0.0.1 {first.port} 1\n"
            f"sentinel down-after-milliseconds {_NAME} {_SILENT_MS}\n"
            f"sentinel failover-timeout {_NAME} 3000\n"
        )
        return cls([primary, replica], Process(folder, watcher, arguments=("--sentinel",)), primary)

    @property
    def url(self) -> str:
        """For `--url`."""
        return f"sentinel://127.0.0.1:{self.sentinel.target.port}/{_NAME}"

    @property
    def processes(self) -> Sequence[Process]:
        """All that was started."""
        return [*self.servers, self.sentinel]

    async def start(self) -> None:
        """Raises ServerUnreachable."""
        for one in self.processes:
            await one.start()
        await until(self._is_whole, "the replica to follow, and the Sentinel to know it")

    async def stop(self) -> None:
        """End them all."""
        for one in (self.sentinel, *self.servers):
            await one.kill()

    async def fail_over(self, away: float) -> None:
        """Kill the primary; return when another one has its place, and the dead one, `away` seconds later, follows."""
        dead = self.primary
        await dead.kill()
        try:
            await until(lambda: self._has_left(dead), "another primary")
            await asyncio.sleep(away)
        finally:
            await dead.start()
        await until(self._is_whole, "the killed one to follow the new primary")

    async def _has_left(self, dead: Process) -> bool:
        reply = await ask(self.sentinel.target, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", _NAME)
        found = next(one for one in self.servers if one.target.port == int(reply[1]))
        if found is dead or (await replication(found))["role"] != "master":
            return False
        self.primary = found
        return True

    async def _is_whole(self) -> bool:
        (other,) = [one for one in self.servers if one is not self.primary]
        facts = await replication(other)
        known = hash_of(await ask(self.sentinel.target, "SENTINEL", "MASTER", _NAME))
        follows = facts["role"] == "slave" and facts.get("master_link_status") == "up"
        return follows and known["num-slaves"] == "1" and known["flags"] == "master"
