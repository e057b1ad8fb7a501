"""What survives in memory while processes come and go, and what every process may read of it."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence

from bus.errors import InputError, ViolationError
from bus.memory.batch import MemoryBatch
from bus.memory.streams import MemoryStream
from bus.port import BatchInfo, BatchStatus, Counters, Entry, Event, Group, RunEnd, RunRow, RunState, Runtime
from bus.types import BatchId, ConsumerId, Digest, EntryId, Plane, RunId

__all__ = ["MemoryReader", "MemoryWorld"]


class MemoryWorld:
    """The batches, and their blobs: what a server would hold. `runtime`: its clock.

    `server` names its present life. Under another name all that was granted before is void: see `bus.memory.restart`.
    """

    def __init__(self, runtime: Runtime) -> None:
        """Empty."""
        self.runtime = runtime
        self.batches: dict[BatchId, MemoryBatch] = {}
        self.blobs: dict[BatchId, dict[Digest, bytes]] = {}
        self.server = ""


class MemoryReader:
    """The reading half of `bus.port.Bus`, for one process; `bus.memory.bus` adds the steps."""

    def __init__(self, world: MemoryWorld, runtime: Runtime, *, plane: Plane = Plane.LIVE) -> None:
        """`runtime`: the process's own clock, sleep and randomness."""
        self._world, self._runtime, self.plane = world, runtime, plane
        self.connections = 1
        self.sent_to: str | None = None
        """The life of the server that its steps are for; None: the one that is there when they arrive."""

    def _of(self, batch: BatchId) -> MemoryBatch:
        if batch not in self._world.batches:
            raise InputError(f"no batch {batch!r} in this world")
        return self._world.batches[batch]

    def _stream(self, batch: BatchId, group: Group) -> MemoryStream:
        return self._of(batch).streams[group]

    # --- batches and runs --------------------------------------------------------------------------------

    async def batches(self) -> list[BatchId]:
        """The batches that have not ended."""
        return sorted(name for name, batch in self._world.batches.items() if not batch.ended)

    async def info(self, batch: BatchId) -> BatchInfo | None:
        """What a batch declared, or None when there is none of that name."""
        at = self._world.batches.get(batch)
        if at is None:
            return None
        return BatchInfo(at.spec, BatchStatus(at.histogram.status.value), self.plane, at.incarnation)

    async def counters(self, batch: BatchId) -> Counters:
        """Progress, counted from the lives and the models: there is no counter here that could be wrong."""
        at = self._of(batch)
        states = Counter(life.state for life in at.lives.values())
        return Counters(
            status=BatchStatus(at.histogram.status.value),
            intended=at.spec.intended,
            quorum=at.spec.quorum,
            cursor=at.cursor,
            running=states[RunState.RUNNING],
            sealed=states[RunState.SEALED],
            scoring=states[RunState.SCORING],
            scored=states[RunState.SCORED],
            holes=len(at.histogram.holes),
            in_flight=at.desk.in_flight,
            bins=dict(sorted(at.histogram.counts().items())),
            hole_reasons=dict(sorted(Counter(at.histogram.holes.values()).items())),
            refusals=dict(sorted(at.refused.items())),
            review=len(at.parked),
            snapshot_id=at.histogram.snapshot_id,
            spent=at.ledger.spent,
            durable=at.ledger.durable,
            reserved=at.ledger.reserved,
            estimated=at.estimated,
            effects_open=at.effects_open,
            stuck=at.stuck,
        )

    async def rows(self, batch: BatchId, runs: Sequence[RunId]) -> list[RunRow]:
        """The rows of the given runs that exist, in the order given."""
        at = self._of(batch)
        return [_row(at, run) for run in runs if run in at.lives]

    async def ends(self, batch: BatchId, runs: Sequence[RunId]) -> list[RunEnd]:
        """Of the rows of the given runs that exist, in the order given, what a snapshot is made of."""
        rows = await self.rows(batch, runs)
        return [RunEnd(row.run, row.state, row.epoch, row.digest, row.bin, row.value, row.hole) for row in rows]

    async def run_ids(self, batch: BatchId) -> list[RunId]:
        """Every run that was admitted or abandoned, in that order."""
        return list(self._of(batch).lives)

    async def transcript(self, batch: BatchId, run: RunId, head: Digest | None = None) -> list[Event]:
        """The committed events of a run's present conversation, in order. `head` saves nothing here."""
        at, life = self._of(batch), self._of(batch).life(run)
        written = zip(at.chain(run).events, life.writers.get(life.conversation, []), strict=True)
        return [Event(seq, payload, gen) for seq, (payload, gen) in enumerate(written, start=1)]

    async def parked(self, batch: BatchId) -> list[RunId]:
        """Runs whose score waits for a rebind or a person."""
        return sorted(self._of(batch).parked)

    # --- messages ----------------------------------------------------------------------------------------

    async def read(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, block_ms: int
    ) -> list[Entry]:
        """New entries, at most `count`; waits up to `block_ms` for the first."""
        found = self._deliver(group, consumer, batches, count)
        if found or not batches:
            return found
        await self._arrival([self._stream(batch, group) for batch in batches], max(block_ms, 1) / 1000)
        return self._deliver(group, consumer, batches, count)

    def _deliver(self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int) -> list[Entry]:
        found: list[Entry] = []
        for batch in batches:
            given = self._stream(batch, group).deliver(consumer, count - len(found))
            found += [self._entry(batch, group, entry) for entry in given]
        return found

    async def _arrival(self, streams: Sequence[MemoryStream], seconds: float) -> None:
        """Wait for an entry in one of the streams. The time passes on the runtime's clock, which may be virtual."""
        waits = [asyncio.ensure_future(stream.arrived.wait()) for stream in streams]
        pause = asyncio.ensure_future(self._runtime.sleep(seconds))
        try:
            await asyncio.wait([*waits, pause], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in (*waits, pause):
                wait.cancel()

    async def own_pending(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int
    ) -> list[Entry]:
        """Entries that this consumer was given before and that are still pending for it."""
        found: list[Entry] = []
        for batch in batches:
            own = self._stream(batch, group).redeliver(consumer, count)
            found += [self._entry(batch, group, entry) for entry in own]
        return found[:count]

    async def take_idle(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, idle_ms: int
    ) -> list[Entry]:
        """Entries of silent consumers, now owned by this one."""
        found: list[Entry] = []
        for batch in batches:
            taken = self._stream(batch, group).take_idle(consumer, count - len(found), idle_ms / 1000)
            found += [self._entry(batch, group, entry) for entry in taken]
        return found

    def _entry(self, batch: BatchId, group: Group, entry: EntryId) -> Entry:
        fields = self._stream(batch, group).entries[entry]
        return Entry(batch, group, entry, RunId(fields["run"]), fields)

    async def undelivered(self, batch: BatchId, group: Group) -> int:
        """How many entries the group has pending, plus 1 when the stream has any that it was never given."""
        stream = self._stream(batch, group)
        return len(stream.pending) + int(stream.undelivered())

    # --- blobs -------------------------------------------------------------------------------------------

    async def put_blob(self, batch: BatchId, data: bytes) -> Digest:
        """Store bytes under their own digest; of any size, as with an artifact store."""
        digest = Digest(hashlib.sha256(data).hexdigest())
        self._world.blobs.setdefault(batch, {})[digest] = data
        return digest

    async def get_blob(self, batch: BatchId, digest: Digest) -> bytes:
        """Fetch and rehash; raises `ViolationError` when the bytes are not those that were named."""
        data = self._world.blobs.get(batch, {}).get(digest)
        if data is None:
            raise InputError(f"no artifact {digest}")
        if hashlib.sha256(data).hexdigest() != digest:
            raise ViolationError(f"the artifact {digest} holds other bytes than its name says")
        return data


def _row(at: MemoryBatch, run: RunId) -> RunRow:
    life, chain = at.lives[run], at.chain(run)
    scored, token = at.histogram.rows.get(run), at.judge.tokens.get(run)
    return RunRow(
        run=run,
        state=life.state,
        gen=life.gen,
        attempts=life.attempts,
        score_attempts=life.score_attempts,
        entry=life.entry,
        head=chain.head,
        length=chain.length,
        epoch=at.epoch(run),
        digest=at.histogram.digests.get(run, ""),
        bin=scored.bin if scored else "",
        value=scored.value if scored else "",
        hole=at.histogram.holes.get(run, ""),
        consumer=life.consumer,
        detail=life.detail,
        judge_epoch=token.epoch if token else 0,
        conversation=life.conversation,
        tree=life.tree,
        artifact=life.artifact,
    )
