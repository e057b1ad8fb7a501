"""What batches there are in a cluster: the registries of all shards, read with one pipeline for each primary.

Every role asks once a second. One connection a primary is enough for that; a shard gets connections of its own only
when it has a batch that somebody works on (`bus.cluster`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import tenacity

from bus.errors import ReplyError, ServerUnreachable
from bus.keys import registry
from bus.link import HURRIED, may_pass
from bus.port import Runtime
from bus.replies import hash_of
from bus.target import Target
from bus.topology import Primary, Topology
from bus.types import BatchId, Plane
from bus.wire import Reply, Wire

__all__ = ["Registries"]

_SILENCE = 5.0  # seconds; what is asked is read at once
_AT_LEAST = 1.5  # seconds for one that is asked late in a hurry: it may answer as ever


class Registries:
    """See the module's text."""

    def __init__(self, topology: Topology, runtime: Runtime, plane: Plane, *, patience: float) -> None:
        """`patience`: seconds without an answer after which a call gives up."""
        self._topology, self._runtime, self._plane, self._patience = topology, runtime, plane, patience
        self._primaries: Sequence[Primary] | None = None
        self._wires: dict[Target, Wire] = {}
        self._reading = asyncio.Lock()
        self._limits: set[asyncio.Timeout] = set()
        """Of what is being asked."""
        self._gives_up: float | None = None

    async def read(self) -> Mapping[int, Mapping[str, str]]:
        """Shard → batch → status. Raises ServerUnreachable."""
        return {shard: hash_of(reply) for shard, reply in (await self._asked("HGETALL")).items()}

    async def find(self, batch: BatchId) -> int | None:
        """The shard whose registry names a batch; None where none does. Raises ServerUnreachable."""
        replies = await self._asked("HGET", batch)
        return next((shard for shard, reply in replies.items() if reply is not None), None)

    async def _asked(self, command: str, *words: str) -> Mapping[int, Reply]:
        """What each shard's registry answers."""
        until = None if self._gives_up is None else max(self._gives_up, asyncio.get_running_loop().time() + _AT_LEAST)
        try:
            # Those who stand in line behind one that is not answered are not each to wait for as long as that.
            async with asyncio.timeout_at(until) as limit:
                self._limits.add(limit)
                try:
                    async with self._reading:
                        return await self._insist(command, words)
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            raise ServerUnreachable("a cluster's server does not answer, and this process was told to stop") from None

    async def _insist(self, command: str, words: Sequence[str]) -> Mapping[int, Reply]:
        async for attempt in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(may_pass),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
            stop=lambda state: (state.seconds_since_start or 0.0) >= self._patience,
            sleep=self._runtime.sleep,
            reraise=True,
        ):
            with attempt:
                return await self._ask(command, words)
        raise AssertionError("unreachable")

    async def _ask(self, command: str, words: Sequence[str]) -> Mapping[int, Reply]:
        try:
            if self._primaries is None:
                self._primaries = await self._topology.primaries(self._plane)
            asked = [one for one in self._primaries if one.shards]
            replies = await asyncio.gather(*(self._of(one, command, words) for one in asked))
        except (ReplyError, ServerUnreachable):
            self._primaries = None  # somebody else has it by now, or will
            raise
        return {shard: found for one in replies for shard, found in one.items()}

    async def _of(self, primary: Primary, command: str, words: Sequence[str]) -> Mapping[int, Reply]:
        wire = self._wires.get(primary.target)
        if wire is None or wire.lost:
            wire = self._wires[primary.target] = await Wire.open(primary.target.address(), silence=_SILENCE)
        replies = await wire.calls([(command, registry(self._plane, shard), *words) for shard in primary.shards])
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise reply
        return dict(zip(primary.shards, replies, strict=True))

    def hurry(self) -> None:
        """See `bus.link.Link.hurry`."""
        if self._gives_up is not None:
            return
        self._gives_up = asyncio.get_running_loop().time() + HURRIED
        self._patience = min(self._patience, HURRIED)
        for limit in self._limits:
            with contextlib.suppress(RuntimeError):  # it has run out already
                limit.reschedule(self._gives_up)

    def close(self) -> None:
        """Close the connections."""
        for wire in self._wires.values():
            wire.close()
