"""The bus on a cluster: `bus.port.Bus` over many shards, each batch in one of them.

A script touches several keys of a batch, and a cluster runs it only where all of them are; so a batch lives in one hash
slot, and it is batches that are spread over the primaries, not runs. Each shard is a `RedisBus` of its own, whose door
leads to whichever primary has its slot now. Here is decided only which shard is asked:

- a batch that exists is where its name stands in a registry. It is looked up once, but for those that ended long ago;
- a new one goes where its name hashes to, so that two who declare it at the same time meet; but one that scores
  another's runs anew goes where those are, for the script that adopts them reads both.

A shard is connected to when a batch of it is served. What one primary does not answer, because it died and its replica
is not promoted yet, holds up the batches that it has, and no lease of the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from bus.artifacts import ArtifactStore
from bus.connection import Endpoint
from bus.endpoint_limits import EndpointLimits, EndpointRates
from bus.keys import shard_of
from bus.port import BatchSpec, BatchStatus, Entry, Group, Held, Ref, Runtime
from bus.redis_bus import RedisBus
from bus.redis_rows import status_of
from bus.registries import Registries
from bus.rests import Rests
from bus.tombstones import Tombstone
from bus.topology import ShardDoor, Topology
from bus.types import BatchId, ConsumerId, Decision, Durability, Plane

__all__ = ["ServerBus", "ShardedBus", "open_bus"]

P = ParamSpec("P")
T = TypeVar("T")

_TURN_MS = 50
"""So long a read waits at one shard while others may have something. It waits at one only: what two were given at
once might be more than there is room for."""

_MOST: Final = 1_000
"""Batches that are not open whose shards are known: a registry names all that there ever were."""

_BEAT_AGAIN = 0.5
"""Seconds after which a shard counts as one that does not answer for now."""


def _routed(
    method: Callable[Concatenate[RedisBus, P], Awaitable[T]],
) -> Callable[Concatenate[ShardedBus, P], Coroutine[Any, Any, T]]:
    """A method of `RedisBus`, at the shard of the batch that its first argument is, or names."""

    async def routed(self: ShardedBus, /, *args: P.args, **kwargs: P.kwargs) -> T:
        first: object = args[0] if args else next(iter(kwargs.values()))
        return await method(await self.of(_batch_in(first)), *args, **kwargs)

    routed.__name__, routed.__doc__ = method.__name__, method.__doc__
    return routed


def _batch_in(first: object) -> BatchId:
    if isinstance(first, Entry | Ref):
        return first.batch
    if isinstance(first, str):
        return BatchId(first)
    raise TypeError(f"no batch is named by {first!r}")


@dataclass(frozen=True, slots=True)
class _Share:
    """One shard's part of some batches."""

    bus: RedisBus
    batches: list[BatchId]


class ShardedBus:
    """See the module's text."""

    def __init__(
        self,
        topology: Topology,
        runtime: Runtime,
        *,
        plane: Plane = Plane.LIVE,
        artifacts: ArtifactStore | None = None,
        patience: float = 60.0,
        lease: float = 10.0,
        durability: Durability = Durability.RELAXED,
    ) -> None:
        """As `RedisBus`; connects to nothing yet."""
        self.plane = plane
        self._topology, self._runtime, self._artifacts = topology, runtime, artifacts
        self._patience, self._lease, self._durability = patience, lease, durability
        self._registries = Registries(topology, runtime, plane, patience=patience)
        self._shards: dict[int, RedisBus] = {}
        self._open: dict[BatchId, int] = {}
        """Where each open batch is, as of the last look."""
        self._asked: dict[BatchId, int] = {}
        """Where others are that were asked for, or are to be declared."""
        self._turn = 0

    # --- which shard -------------------------------------------------------------------------------------

    def shard(self, number: int) -> RedisBus:
        """The bus of one shard; it connects when it is asked something."""
        if number not in self._shards:
            self._shards[number] = RedisBus(
                ShardDoor(self._topology, self.plane, number),
                self._runtime,
                plane=self.plane,
                artifacts=self._artifacts,
                patience=self._patience,
                lease=self._lease,
                durability=self._durability,
                shard=number,
            )
        return self._shards[number]

    async def of(self, batch: BatchId) -> RedisBus:
        """The bus of the shard where a batch is, or where it would be declared."""
        at = await self._found(batch)
        return self.shard(shard_of(batch) if at is None else at)

    async def put_beside(self, batch: BatchId, other: BatchId) -> None:
        """A batch that is to be declared goes where `other` is, unless there is one of that name already."""
        at = await self.of(other)
        if await self._found(batch) is None:
            self._remember(batch, at.shard)

    async def _found(self, batch: BatchId) -> int | None:
        at = self._open.get(batch, self._asked.get(batch))
        if at is None and (at := await self._registries.find(batch)) is not None:
            self._remember(batch, at)
        return at

    def _remember(self, batch: BatchId, shard: int) -> None:
        if len(self._asked) >= _MOST:  # the oldest: it is looked for again, should it be asked for
            del self._asked[next(iter(self._asked))]
        self._asked[batch] = shard

    async def _look(self) -> dict[BatchId, str]:
        """What the registries say; where each open batch is will be known from then on."""
        found: dict[BatchId, str] = {}
        opened: dict[BatchId, int] = {}
        for shard, statuses in (await self._registries.read()).items():
            for name, status in statuses.items():
                found[BatchId(name)] = status
                if status == "open":
                    opened[BatchId(name)] = shard
        self._open = opened
        return found

    async def _split(self, batches: Iterable[BatchId]) -> list[_Share]:
        """The batches by their shards; another shard is the first each time."""
        shares: dict[int, list[BatchId]] = {}
        for batch in batches:
            shares.setdefault((await self.of(batch)).shard, []).append(batch)
        found = [_Share(self.shard(number), names) for number, names in sorted(shares.items())]
        self._turn += 1
        first = self._turn % max(len(found), 1)
        return found[first:] + found[:first]

    # --- what concerns many batches ----------------------------------------------------------------------

    async def batches(self) -> list[BatchId]:
        """The batches that have not ended, of all shards."""
        return sorted(name for name, status in (await self._look()).items() if status == "open")

    async def all_batches(self) -> dict[BatchId, BatchStatus]:
        """Every batch on this plane, of all shards, with its status in its registry."""
        return {name: status_of(value) for name, value in (await self._look()).items()}

    async def tombstones(self) -> dict[BatchId, Tombstone]:
        """What is left of every batch on this plane that was pruned."""
        found = {name: Tombstone.read(value) for name, value in (await self._look()).items()}
        return {name: tombstone for name, tombstone in found.items() if tombstone is not None}

    async def read(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, block_ms: int
    ) -> list[Entry]:
        """New entries, at most `count`; waits up to about `block_ms` for the first, at the shards in turn."""
        shares = await self._split(batches)
        if len(shares) == 1:
            return await shares[0].bus.read(group, consumer, batches, count, block_ms)
        found: list[Entry] = []
        for share in shares:
            found += await share.bus.read_now(group, consumer, share.batches, count - len(found))
            if len(found) >= count:
                return found
        until = self._runtime.now() + block_ms / 1000
        while shares and not found and self._runtime.now() < until:
            for share in shares:
                found = await share.bus.read(group, consumer, share.batches, count, min(block_ms, _TURN_MS))
                if found or self._runtime.now() >= until:
                    break
        return found

    async def own_pending(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int
    ) -> list[Entry]:
        """Entries that this consumer was given before and that are still pending for it."""
        found: list[Entry] = []
        for share in await self._split(batches):
            found += await share.bus.own_pending(group, consumer, share.batches, count)
        return found[:count]

    async def take_idle(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, idle_ms: int
    ) -> list[Entry]:
        """Entries of silent consumers, now owned by this one; none of a shard whose idle times are void."""
        found: list[Entry] = []
        for share in await self._split(batches):
            if len(found) >= count:
                break
            found += await share.bus.take_idle(group, consumer, share.batches, count - len(found), idle_ms)
        return found

    async def heartbeat(self, group: Group, consumer: ConsumerId, held: Held) -> list[Decision]:
        """Keep what is held alive; one decision a lease, in the order of `held.leases`.

        While a shard does not answer, the leases at the others are renewed again and again: nobody there fell silent.
        """
        shares = await self._split({ref.batch for ref in held.leases} | {entry.batch for entry in held.entries})
        answers: dict[Ref, Decision] = {}

        async def beat(share: _Share) -> None:
            part = Held(
                [ref for ref in held.leases if ref.batch in share.batches],
                [entry for entry in held.entries if entry.batch in share.batches],
            )
            said = await share.bus.heartbeat(group, consumer, part)
            for ref, decision in zip(part.leases, said, strict=True):
                answers.setdefault(ref, decision)  # not a repetition's: what ended meanwhile is refused there

        tasks = {asyncio.create_task(beat(share)): share for share in shares}
        waiting = set(tasks)
        try:
            while waiting:
                done, waiting = await asyncio.wait(tasks, timeout=_BEAT_AGAIN)
                for task in done:
                    task.result()
                if waiting:
                    await asyncio.gather(*(beat(tasks[task]) for task in done))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # of several that failed, one is told of
        return [answers[ref] for ref in held.leases]

    def limits_of(self, base_url: str, rates: EndpointRates) -> EndpointLimits:
        """What all workers on this cluster and plane may ask of an endpoint together: kept in one shard for all."""
        return self.shard(0).limits_of(base_url, rates)

    @property
    def rests(self) -> Rests:
        """Who takes no work now, on this cluster and plane: kept in one shard."""
        return self.shard(0).rests

    # --- what concerns one ------------------------------------------------------------------------------

    async def create(self, spec: BatchSpec) -> Decision:
        """Declare a batch: see `RedisBus.create`."""
        if spec.source:
            await self.put_beside(spec.batch, BatchId(spec.source))
        return await (await self.of(spec.batch)).create(spec)

    info = _routed(RedisBus.info)
    tombstone = _routed(RedisBus.tombstone)
    counters = _routed(RedisBus.counters)
    rows = _routed(RedisBus.rows)
    ends = _routed(RedisBus.ends)
    run_ids = _routed(RedisBus.run_ids)
    transcript = _routed(RedisBus.transcript)
    dead_letter = _routed(RedisBus.dead_letter)
    put_blob = _routed(RedisBus.put_blob)
    get_blob = _routed(RedisBus.get_blob)
    put_bundle = _routed(RedisBus.put_bundle)
    bundle = _routed(RedisBus.bundle)
    admit = _routed(RedisBus.admit)
    adopt = _routed(RedisBus.adopt)
    abandon = _routed(RedisBus.abandon)
    requeue = _routed(RedisBus.requeue)
    sweep = _routed(RedisBus.sweep)
    rebind = _routed(RedisBus.rebind)
    parked = _routed(RedisBus.parked)
    undelivered = _routed(RedisBus.undelivered)
    close = _routed(RedisBus.close)
    confirm = _routed(RedisBus.confirm)
    claim = _routed(RedisBus.claim)
    append = _routed(RedisBus.append)
    seal = _routed(RedisBus.seal)
    give_back = _routed(RedisBus.give_back)
    hole = _routed(RedisBus.hole)
    score_claim = _routed(RedisBus.score_claim)
    score = _routed(RedisBus.score)
    score_give_back = _routed(RedisBus.score_give_back)
    score_hole = _routed(RedisBus.score_hole)
    open_call = _routed(RedisBus.open_call)
    has_room = _routed(RedisBus.has_room)
    flush = _routed(RedisBus.flush)
    bind_call = _routed(RedisBus.bind_call)
    drop_call = _routed(RedisBus.drop_call)
    expired_calls = _routed(RedisBus.expired_calls)
    resolve = _routed(RedisBus.resolve)
    open_judge = _routed(RedisBus.open_judge)
    bind_judge = _routed(RedisBus.bind_judge)
    write = _routed(RedisBus.write)
    put_tools = _routed(RedisBus.put_tools)
    intents = _routed(RedisBus.intents)
    effects = _routed(RedisBus.effects)
    tool_requeue = _routed(RedisBus.tool_requeue)
    doubts = _routed(RedisBus.doubts)
    join = _routed(RedisBus.join)
    turn = _routed(RedisBus.turn)
    tool_claim = _routed(RedisBus.tool_claim)
    free_slots = _routed(RedisBus.free_slots)
    tool_sent = _routed(RedisBus.tool_sent)
    tool_complete = _routed(RedisBus.tool_complete)

    # --- life --------------------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """How often reading connections were opened, of all shards together."""
        return sum(one.connections for one in self._shards.values())

    def hurry(self) -> None:
        """See `RedisBus.hurry`."""
        self._registries.hurry()
        for one in self._shards.values():
            one.hurry()

    async def opened(self, seconds: float) -> None:
        """Only the clock: one connection waits at one server, and a batch may be declared at any of them."""
        await self._runtime.sleep(seconds)

    async def aclose(self) -> None:
        """Close the connections."""
        self._registries.close()
        for one in self._shards.values():
            await one.aclose()


ServerBus = RedisBus | ShardedBus
"""The bus on a server, or on a cluster. Whoever reads one batch's keys by itself asks `of(batch)` for the bus of its
shard first."""


def open_bus(
    endpoint: Endpoint,
    runtime: Runtime,
    *,
    plane: Plane = Plane.LIVE,
    artifacts: ArtifactStore | None = None,
    patience: float = 60.0,
    lease: float = 10.0,
    durability: Durability = Durability.RELAXED,
) -> ServerBus:
    """The bus on what an endpoint leads to; the arguments are those of `RedisBus`."""
    topology = endpoint.topology
    if topology is None:
        return RedisBus(
            endpoint, runtime, plane=plane, artifacts=artifacts, patience=patience, lease=lease, durability=durability
        )
    return ShardedBus(
        topology, runtime, plane=plane, artifacts=artifacts, patience=patience, lease=lease, durability=durability
    )
