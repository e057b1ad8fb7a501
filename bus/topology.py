"""Which server of a cluster has what: asked of the cluster itself, before each connection.

A cluster deals its hash slots out to primaries, and may deal them out anew at any time: a replica takes the place of
a primary that died, a slot is moved to another server. Any server of the cluster knows how it stands, but one that was
cut off may go on believing what is over: it says that its cluster is down, and the next one is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.info import parse_info
from bus.keys import SHARDS, slot_of
from bus.target import Target
from bus.types import Plane
from bus.wire import Address, Reply, Wire

__all__ = ["Primary", "ShardDoor", "Topology"]

_ANSWER = 2.0  # seconds for one server: the next one may be quicker


@dataclass(frozen=True, slots=True)
class Primary:
    """One primary, and which of a plane's shards it has."""

    target: Target
    shards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Range:
    """Slots, both ends included, and whose they are."""

    first: int
    last: int
    host: str
    port: int


class Topology:
    """See the module's text. It remembers which servers there are, and nothing of what they have."""

    def __init__(self, target: Target) -> None:
        """`target`: one with a `cluster`. Raises ValueError for any other."""
        if target.cluster is None:
            raise ValueError("the target is no cluster")
        self.target = target
        self._known = dict.fromkeys(target.cluster.hosts)

    async def owner(self, slot: int) -> Target:
        """The primary that has a slot now. Raises ServerUnreachable, ServerUnfit."""
        for one in await self._ranges():
            if one.first <= slot <= one.last:
                return self._at(one.host, one.port)
        raise ServerUnreachable(f"{self.target.redacted}: no server of the cluster has the slot {slot}")

    async def primaries(self, plane: Plane) -> list[Primary]:
        """Every primary that has slots, with its share of a plane's shards. Raises ServerUnreachable, ServerUnfit."""
        shards: dict[tuple[str, int], list[int]] = {}
        for one in await self._ranges():
            had = shards.setdefault((one.host, one.port), [])
            had += [shard for shard in range(SHARDS) if one.first <= slot_of(plane, shard) <= one.last]
        return [Primary(self._at(*place), tuple(sorted(had))) for place, had in shards.items()]

    def _at(self, host: str, port: int) -> Target:
        return replace(self.target, host=host, port=port, cluster=None)

    async def _ranges(self) -> Sequence[_Range]:
        """What the first server says that is there and sees its cluster whole."""
        problems: list[str] = []
        unfit = 0
        for host, port in list(self._known):
            try:
                async with asyncio.timeout(_ANSWER):
                    said = await _asked(self._at(host, port).address())
            except ServerUnfit as error:
                unfit += 1
                problems.append(f"{host}:{port}: {error}")
                continue
            except (ReplyError, ServerUnreachable, TimeoutError) as error:
                problems.append(f"{host}:{port}: {error or 'no answer'}")
                continue
            if parse_info(said.state).get("cluster_state") != "ok":
                problems.append(f"{host}:{port} says that the cluster is down")
                continue
            others = {_place(node, host) for _, _, *nodes in said.slots for node in nodes}
            self._known = dict.fromkeys([(host, port), *self._known, *sorted(others)])
            return [_Range(int(first), int(last), *_place(nodes[0], host)) for first, last, *nodes in said.slots]
        where = f"{self.target.redacted}: {'; '.join(problems)}"
        if unfit == len(problems):
            raise ServerUnfit(where)
        raise ServerUnreachable(where)


class ShardDoor:
    """The `Door` to one shard of a plane: it leads to whichever primary has its slot."""

    is_watched = True
    is_ours = False

    def __init__(self, topology: Topology, plane: Plane, shard: int) -> None:
        """Asks nothing yet."""
        self._topology, self._slot = topology, slot_of(plane, shard)
        self._owner: Target | None = None

    def address(self) -> Address:
        """Where the last `ensure` was told to connect."""
        if self._owner is None:
            raise RuntimeError("a shard's door leads nowhere before `ensure`")
        return self._owner.address()

    async def ensure(self) -> bool:
        """Ask the cluster who has the slot now; it starts nothing, so the answer is False."""
        self._owner = await self._topology.owner(self._slot)
        return False


@dataclass(frozen=True, slots=True)
class _Said:
    """One server's view: CLUSTER INFO and CLUSTER SLOTS."""

    state: Reply
    slots: Reply


async def _asked(address: Address) -> _Said:
    wire = await Wire.open(address)
    try:
        replies = await wire.calls([("CLUSTER", "INFO"), ("CLUSTER", "SLOTS")])
    finally:
        wire.close()
    found: list[Reply] = []
    for said in replies:
        if not isinstance(said, ReplyError):
            found.append(said)
        else:
            if "cluster support disabled" in str(said):
                raise ServerUnfit("it is no server of a cluster (write redis://HOST:PORT for a single one)") from said
            if said.code == "NOPERM":
                raise ServerUnfit(f"this user has too few rights: {said} (ACL SETUSER … +cluster|info +cluster|slots)")
            raise said
    return _Said(*found)


def _place(node: Reply, asked: str) -> tuple[str, int]:
    """Host and port. A server that does not know its own name is called as it was reached."""
    host = node[0].decode() if node[0] else ""
    return (asked if host in ("", "?") else host), int(node[1])
