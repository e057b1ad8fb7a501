"""The bus on a server: `bus.port.Bus` over the scripts in `lua/run`.

Each method that changes state sends one script. What it sends twice is applied once; see `bus.link` for when it does.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from bus.at_once import all_of
from bus.chain import EMPTY_HEAD, next_head
from bus.envelopes import MAX_PAYLOAD, check_payload
from bus.errors import ArtifactMissing, ArtifactNotFound, InputError, ReplyError, ViolationError
from bus.events import StoredEvent, ends_in
from bus.imported.looking import IMPORTED_OPEN
from bus.keys import BatchKeys, registry
from bus.link import Link
from bus.port import (
    LIMITS,
    BatchInfo,
    BatchSpec,
    BatchStatus,
    Counters,
    Entry,
    Event,
    Group,
    Held,
    Judgement,
    Ref,
    RunEnd,
    RunRow,
    RunState,
)
from bus.redis_calls import CallSteps
from bus.redis_tools import ToolSteps
from bus.replies import hash_of, pairs_of
from bus.rests import Rests
from bus.scripts import script
from bus.streams import claimed, delivered
from bus.texts import text_of
from bus.tombstones import PrunedError, Tombstone
from bus.types import BatchId, ConsumerId, Decision, Digest, EntryId, LeaseId, RunId, Verb
from bus.wire import Reply

__all__ = ["RedisBus", "status_of"]

log = structlog.get_logger("evalbus.bus")

_INDEX_AT_ONCE = 5_000  # run ids in one read
_ADMIT_AT_ONCE = 100  # runs in one script: bounded work, and one message a hundred runs is nothing beside them
_NOTHING_READ: Mapping[str, Reply] = {"XREADGROUP": None, "XAUTOCLAIM": [b"0-0", [], []], "XPENDING": []}
_ROW = (
    "state", "t.gen", "attempts", "s.attempts", "entry", "t.head", "t.len", "h.epoch", "h.digest", "h.bin", "h.value",
    "h.why", "consumer", "detail", "j.epoch", "conversation", "tree", "artifact",
)  # fmt: skip
_END = ("state", "h.epoch", "h.digest", "h.bin", "h.value", "h.why")
_ROWS_AT_ONCE = 500  # in one write
_UNTIL_IT_LOOKS = 0.1  # seconds that a read of a batch that is gone takes: its reader asks the registry every second
_OF_ONE = 8  # entries of a batch at a time where many have some: what is one batch's can go into one call of a script
_BEAT_AT_ONCE = 500  # leases, and entries, in one heartbeat: likewise


class RedisBus(CallSteps, ToolSteps):
    """See the module's text."""

    # --- reading -----------------------------------------------------------------------------------------

    async def of(self, batch: BatchId) -> RedisBus:
        """The bus of the shard where a batch is: this one. `bus.cluster.ShardedBus` has more."""
        return self

    async def put_beside(self, batch: BatchId, other: BatchId) -> None:
        """See `bus.cluster.ShardedBus`: here all batches are beside each other."""

    @property
    def link(self) -> Link:
        """The connection for scripts and reads."""
        return self._link

    @property
    def rests(self) -> Rests:
        """Who takes no work now."""
        return Rests(self._link, self.plane, self.shard)

    @property
    def grace_until(self) -> float:
        """Until when, on the runtime's clock, idle times mean nothing: the server or the link was away."""
        return max(self._link.grace_until, self._reader.grace_until)

    @property
    def connections(self) -> int:
        """How often the reading connection was opened."""
        return self._reader.opened

    async def batches(self) -> list[BatchId]:
        """The batches that have not ended."""
        reply = hash_of(await self._link.command("HGETALL", registry(self.plane, self.shard)))
        return sorted(BatchId(name) for name, status in reply.items() if status == "open")

    async def all_batches(self) -> dict[BatchId, BatchStatus]:
        """Every batch on this plane, with its status in the registry (`open` until it has ended)."""
        reply = hash_of(await self._link.command("HGETALL", registry(self.plane, self.shard)))
        return {BatchId(name): status_of(value) for name, value in reply.items()}

    async def tombstones(self) -> dict[BatchId, Tombstone]:
        """What is left of every batch on this plane that was pruned."""
        reply = hash_of(await self._link.command("HGETALL", registry(self.plane, self.shard)))
        found = {BatchId(name): Tombstone.read(status) for name, status in reply.items()}
        return {name: tombstone for name, tombstone in found.items() if tombstone is not None}

    async def info(self, batch: BatchId) -> BatchInfo | None:
        """What a batch declared, or None when there is none of that name. Raises InputError for one that was pruned."""
        spec, status, incarnation, imported = await self._link.command(
            "HMGET", self.keys(batch).batch_row, "spec", "status", "incarnation", "imported"
        )
        if spec is None:
            if tombstone := await self.tombstone(batch):
                raise PrunedError(batch, tombstone)
            return None
        return BatchInfo(
            BatchSpec.from_json(spec),
            BatchStatus(status.decode()),
            self.plane,
            incarnation.decode(),
            imported=imported.decode() if imported is not None else "",
        )

    async def counters(self, batch: BatchId) -> Counters:
        """Progress: one read of the batch's hash, with one of its desk's and the number of those under review."""
        keys = self.keys(batch)
        row_reply, in_flight, review = await self._link.commands(
            [("HGETALL", keys.batch_row), ("HGET", keys.desk(), "in_flight"), ("SCARD", keys.review)]
        )
        row = hash_of(row_reply)
        if "status" not in row:  # what is played by a fence's own scripts is counted without a declaration
            raise InputError(f"no batch {batch!r} on this server")

        def number(field: str) -> int:
            return int(row.get(field, "0"))

        def family(prefix: str) -> dict[str, int]:
            found = {field.removeprefix(prefix): int(n) for field, n in row.items() if field.startswith(prefix)}
            return dict(sorted(found.items()))

        return Counters(
            status=BatchStatus(row["status"]),
            intended=number("intended"),
            quorum=number("quorum"),
            cursor=number("cursor"),
            admitted=number("cursor"),
            running=number("n:running"),
            sealed=number("n:sealed"),
            scoring=number("n:scoring"),
            scored=number("n:scored"),
            holes=number("holes"),
            in_flight=int(in_flight or 0),
            bins=family("bin:"),
            hole_reasons=family("hole:"),
            refusals=family("refused:"),
            review=int(review),
            snapshot_id=row.get("snapshot"),
            spent=number("spent"),
            durable=number("durable"),
            reserved=number("reserved"),
            estimated=number("estimated"),
            effects_open=number("effects_open"),
            stuck=number("stuck"),
        )

    async def rows(self, batch: BatchId, runs: Sequence[RunId]) -> list[RunRow]:
        """The rows of the given runs that exist, in the order given."""
        return [_row(run, reply) for run, reply in await self._of_rows(batch, runs, _ROW)]

    async def ends(self, batch: BatchId, runs: Sequence[RunId]) -> list[RunEnd]:
        """Of the rows of the given runs that exist, in the order given, what a snapshot is made of."""
        return [_end(run, reply) for run, reply in await self._of_rows(batch, runs, _END)]

    async def _of_rows(
        self, batch: BatchId, runs: Sequence[RunId], fields: Sequence[str]
    ) -> list[tuple[RunId, list[bytes | None]]]:
        """These fields of each run that there is. Not the whole row: a run's tools may have left a hundred there."""
        keys = self.keys(batch)
        found: list[tuple[RunId, list[bytes | None]]] = []
        for start in range(0, len(runs), _ROWS_AT_ONCE):
            piece = runs[start : start + _ROWS_AT_ONCE]
            replies = await self._link.commands([("HMGET", keys.run(run), *fields) for run in piece])
            found += [(run, reply) for run, reply in zip(piece, replies, strict=True) if reply[0] is not None]
        return found

    async def run_ids(self, batch: BatchId) -> list[RunId]:
        """Every run that was admitted or abandoned, in that order."""
        found: list[RunId] = []
        while True:
            reply = await self._link.command(
                "LRANGE", self.keys(batch).index, len(found), len(found) + _INDEX_AT_ONCE - 1
            )
            found += [RunId(item.decode()) for item in reply]
            if len(reply) < _INDEX_AT_ONCE:
                return found

    async def transcript(self, batch: BatchId, run: RunId, head: Digest | None = None) -> list[Event]:
        """The committed events of a run's present conversation, in order. `head`: where it ends, if that is known."""
        keys = self.keys(batch)
        # Nearly all runs are in their first conversation. Where that ends as it should, it is the one; else it is asked
        # for along with the number of the present one, and not behind it.
        if head is not None:
            reply = await self._link.command("LRANGE", keys.transcript(run, 0), 0, -1)
            if ends_in(reply, head):
                return _events(reply)
        number, reply = await self._link.commands(
            [("HGET", keys.run(run), "conversation"), ("LRANGE", keys.transcript(run, 0), 0, -1)]
        )
        if conversation := int(number or 0):
            reply = await self._link.command("LRANGE", keys.transcript(run, conversation), 0, -1)
        return _events(reply)

    async def read(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, block_ms: int
    ) -> list[Entry]:
        """New entries, at most `count`; waits up to `block_ms` for the first."""
        # COUNT holds for each stream by itself. Of several, those that have something are asked first; when all are
        # empty, one read waits on as many of them as there is room for.
        if len(batches) != 1:
            found = await self.read_now(group, consumer, batches, count)
            if found or not batches:
                return found
        self._turn = (self._turn + count) % len(batches)
        streams = self._streams(group, [*batches, *batches][self._turn : self._turn + min(count, len(batches))])
        reply = await self._group_read(
            group, streams, "XREADGROUP", "GROUP", group.on_server, consumer, "COUNT", count // len(streams),
            "BLOCK", max(block_ms, 1), "STREAMS", *streams, *([">"] * len(streams)),
        )  # fmt: skip
        return delivered(reply, group, streams)

    async def read_now(self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int) -> list[Entry]:
        """New entries that are there already, at most `count`; another batch comes first each time.

        One command asks as many of them as may all answer in full. Who does may have more, and is asked again.
        """
        found: list[Entry] = []
        first = self._turn % max(len(batches), 1)
        unasked = deque([*batches[first:], *batches[:first]])
        while unasked and (left := count - len(found)) > 0:
            each = max(left // len(unasked), min(left, _OF_ONE))
            asked = [unasked.popleft() for _ in range(min(left // each, len(unasked)))]
            streams = self._streams(group, asked)
            reply = await self._group_read(
                group, streams, "XREADGROUP", "GROUP", group.on_server, consumer, "COUNT", each,
                "STREAMS", *streams, *([">"] * len(streams)),
            )  # fmt: skip
            given = delivered(reply, group, streams)
            found += given
            of_each = Counter(entry.batch for entry in given)
            unasked += [batch for batch in asked if of_each[batch] == each]
            self._turn += len(asked)
        return found

    def _streams(self, group: Group, batches: Iterable[BatchId]) -> dict[str, BatchId]:
        """A group's streams. Not by `keys`: a look at a thousand batches would leave nothing spelt of those at work."""
        return {BatchKeys(self.plane, batch, self.shard).stream(group.stream): batch for batch in batches}

    async def own_pending(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int
    ) -> list[Entry]:
        """Entries that this consumer was given before and that are still pending for it."""
        streams = self._streams(group, batches)
        if not streams:
            return []
        reply = await self._group_read(
            group, streams, "XREADGROUP", "GROUP", group.on_server, consumer, "COUNT", count, "STREAMS",
            *streams, *(["0"] * len(streams)),
        )  # fmt: skip
        return delivered(reply, group, streams)[:count]

    async def take_idle(
        self, group: Group, consumer: ConsumerId, batches: Sequence[BatchId], count: int, idle_ms: int
    ) -> list[Entry]:
        """Entries of silent consumers, now owned by this one; none while idle times are void."""
        found: list[Entry] = []
        if self._runtime.now() < self.grace_until:
            return found
        for stream, batch in (await self._idle(group, batches, idle_ms)).items():
            cursor = "0-0"
            while len(found) < count:
                # A pass may find nothing and still not be at the end: only the cursor 0-0 says that it is.
                reply = await self._group_read(
                    group, {stream: batch}, "XAUTOCLAIM", stream, group.on_server, consumer, idle_ms, cursor, "COUNT",
                    min(count - len(found), 100),
                )  # fmt: skip
                found += claimed(reply, batch, group)
                cursor = reply[0].decode()
                if cursor == "0-0":
                    break
        return found

    async def _idle(self, group: Group, batches: Sequence[BatchId], idle_ms: int) -> dict[str, BatchId]:
        """Of many batches' streams, those with an entry that has been idle for so long: asked for in one round trip."""
        streams = self._streams(group, batches)
        if len(streams) <= 1:
            return streams
        name = group.on_server
        asked = [
            self._group_read(group, {stream: batch}, "XPENDING", stream, name, "IDLE", idle_ms, "-", "+", 1)
            for stream, batch in streams.items()
        ]
        return {stream: streams[stream] for stream, some in zip(streams, await all_of(asked), strict=True) if some}

    async def _group_read(self, group: Group, streams: Mapping[str, BatchId], *command: str | int) -> Reply:
        """Send a read of a group; when the group is gone (a flush, a failover) create it again and say so.

        Handled entries are deleted as they are acknowledged, so a group that begins at 0 is given exactly what has
        not been handled.
        """
        try:
            return await self._reader.command(*command)
        except ReplyError as error:
            if error.code != "NOGROUP":
                raise
        gone = []
        for stream, batch in streams.items():
            if await self._link.command("EXISTS", self.keys(batch).batch_row):
                await self._recreate(stream, group)
            else:
                gone.append(batch)
        if gone and command[0] in _NOTHING_READ:  # pruned while its reader waited; there are other batches to serve
            log.info("batch.gone", batches=gone, group=group.on_server)
            if "BLOCK" in command:
                await self._runtime.sleep(_UNTIL_IT_LOOKS)
            return _NOTHING_READ[str(command[0])]
        return await self._reader.command(*command)

    async def _recreate(self, stream: str, group: Group) -> None:
        try:
            await self._link.command("XGROUP", "CREATE", stream, group.on_server, "0", "MKSTREAM")
            log.warning("group.recreated", stream=stream, group=group.on_server)
        except ReplyError as error:
            if error.code != "BUSYGROUP":
                raise

    async def undelivered(self, batch: BatchId, group: Group) -> int:
        """How many entries the group has pending, plus 1 when the stream has any that it was never given."""
        stream, name = self.keys(batch).stream(group.stream), group.on_server
        if not await self._group_read(group, {stream: batch}, "XPENDING", stream, name):
            return 0
        pending, groups = await self._link.commands([("XPENDING", stream, name), ("XINFO", "GROUPS", stream)])
        for reply in groups:
            facts = pairs_of(reply)
            if facts[b"name"].decode() == name:
                after = "(" + facts[b"last-delivered-id"].decode()
                waiting = await self._link.command("XRANGE", stream, after, "+", "COUNT", 1)
                return int(pending[0]) + len(waiting)
        return int(pending[0])

    async def dead_letter(self, entry: Entry, consumer: ConsumerId, why: str) -> None:
        """Copy an entry that cannot be read to the dead-letter stream and acknowledge it, by its owner only."""
        stream = self.keys(entry.batch).stream(entry.group.stream)
        await self._step(
            "bury", entry.batch, extra_keys={"stream": stream}, extra_argv={"content": json.dumps(dict(entry.fields))},
            group=entry.group.on_server, entry=entry.id, consumer=consumer, why=why,
        )  # fmt: skip

    async def put_blob(self, batch: BatchId, data: bytes) -> Digest:
        """Store bytes under their own digest: in the server up to `MAX_PAYLOAD`, above it in the artifact store."""
        digest = Digest(hashlib.sha256(data).hexdigest())
        if len(data) <= MAX_PAYLOAD:
            key = self.keys(batch).blob(digest)
            _, left = await self._link.commands([("SET", key, data), ("HGET", registry(self.plane, self.shard), batch)])
            if left is not None and Tombstone.read(left.decode()):
                # Pruned while its worker slept: nobody would ever remove these bytes. The step that names them says so.
                await self._link.command("SET", key, b"", "PX", 1)
        elif self._artifacts is not None:
            await self._artifacts.put(digest, data)
        else:
            raise InputError(
                f"an artifact of {len(data)} bytes is over the server's limit of {MAX_PAYLOAD}",
                remedy="name a store that all machines reach: --artifacts DIR, or s3://bucket/prefix",
            )
        return digest

    async def get_blob(self, batch: BatchId, digest: Digest) -> bytes:
        """Fetch and rehash.

        Raises `ViolationError` when the bytes were read and are not those that were named; `ArtifactMissing`, and
        `ArtifactUnreachable`, when they were not read.
        """
        data: bytes | None = await self._link.command("GET", self.keys(batch).blob(digest))
        if data is None and self._artifacts is not None:
            data = await self._artifacts.get(digest)
        if data is None:
            remedy = "name the store that the workers write to: --artifacts DIR, or s3://bucket/prefix"
            if self._artifacts is None:
                raise ArtifactMissing(f"no artifact {digest}", remedy=remedy)
            raise ArtifactNotFound(f"no artifact {digest} in {self._artifacts.name}", remedy=remedy)
        if hashlib.sha256(data).hexdigest() != digest:
            raise ViolationError(f"the artifact {digest} holds other bytes than its name says")
        return data

    async def put_bundle(self, batch: BatchId, fields: Mapping[str, str]) -> None:
        """Say which bundle is the batch's suite; see `workers.bundle`."""
        await self._link.command("HSET", self.keys(batch).bundle, *(word for pair in fields.items() for word in pair))

    async def bundle(self, batch: BatchId) -> Mapping[str, str]:
        """Which bundle is the batch's suite; empty when none was published."""
        return hash_of(await self._link.command("HGETALL", self.keys(batch).bundle))

    # --- planner -----------------------------------------------------------------------------------------

    async def create(self, spec: BatchSpec, *, announced: bool = True) -> Decision:
        """Declare a batch: `commit`, `duplicate` for the same declaration, `reject batch_mismatch` for another.

        `reject pruned`: there was a batch of that name; the answer's `tombstone` says where its archive is.
        `announced`: idle roles are woken; not for one that is only played with.
        """
        text = json.dumps(spec.as_fields(), sort_keys=True, ensure_ascii=False)
        # Where a copy of the suite lies is not part of what a batch is.
        declared = json.dumps(spec.as_fields() | {"suite_path": ""}, sort_keys=True)
        limits: dict[str, Any] = {name: value for name, value in spec.limits.items() if name in LIMITS}
        decision = await self._step(
            "create",
            spec.batch,
            declared=hashlib.sha256(declared.encode()).hexdigest(),
            incarnation=self._runtime.token(),
            bins=json.dumps(spec.bins),
            intended=spec.intended,
            quorum=spec.quorum,
            bound=spec.bound,
            max_in_flight=spec.max_in_flight,
            max_deliveries=spec.max_deliveries,
            reclaim_ms=spec.reclaim_ms,
            judge_policy=spec.judge_policy,
            replay_budget=spec.replay_budget,
            spec=text,
            source=spec.source or None,
            **limits,
        )
        if announced and decision.verb is Verb.COMMIT:
            await self._bell.ring(spec.batch)
        return decision

    async def admit(
        self,
        batch: BatchId,
        cursor: int,
        runs: Sequence[RunId],
        read: Sequence[Entry],
        consumer: ConsumerId,
        candidate: str,
        judge: str,
        expected: int = 0,
    ) -> Decision:
        """Admit the next runs from `cursor` on while there is room. Answer: admitted, cursor, why_stopped."""
        runs = runs[:_ADMIT_AT_ONCE]
        keys = self.keys(batch)
        return await self._step(
            "admit",
            batch,
            extra_keys={"rows": [keys.run(run) for run in runs]},
            extra_argv={"items": [*runs, *(entry.id for entry in read)]},
            command_id=self._runtime.token(),
            consumer=consumer,
            cursor=cursor,
            runs=len(runs),
            entries=len(read),
            candidate=candidate,
            judge=judge,
            expected=expected,
        )

    async def adopt(
        self,
        batch: BatchId,
        source: BatchId,
        cursor: int,
        runs: Sequence[RunId],
        read: Sequence[Entry],
        consumer: ConsumerId,
        candidate: str,
        judge: str,
        expected: int = 0,
    ) -> Decision:
        """Take over the next runs of a closed batch from `cursor` on, as they were sealed there."""
        runs = runs[:_ADMIT_AT_ONCE]
        own, theirs = self.keys(batch), self.keys(source)
        return await self._step(
            "adopt",
            batch,
            extra_keys={
                "source": theirs.batch_row,
                "rows": [*(own.run(run) for run in runs), *(theirs.run(run) for run in runs)],
            },
            extra_argv={"items": [*runs, *(entry.id for entry in read)]},
            command_id=self._runtime.token(),
            consumer=consumer,
            source=source,
            cursor=cursor,
            runs=len(runs),
            entries=len(read),
            candidate=candidate,
            judge=judge,
            expected=expected,
        )

    async def abandon(self, batch: BatchId, cursor: int, runs: Sequence[RunId], why: str) -> Decision:
        """Name the next runs from `cursor` on holes: they were never admitted."""
        runs = runs[:_ADMIT_AT_ONCE]
        rows = {"rows": [self.keys(batch).run(run) for run in runs]}
        return await self._step(
            "abandon",
            batch,
            extra_keys=rows,
            extra_argv={"runs": list(runs)},
            cursor=cursor,
            runs=len(runs),
            why=why,
        )

    async def requeue(self, batch: BatchId, group: Group, run: RunId, entry: EntryId) -> Decision:
        """Emit a run's message anew when its group no longer knows the one that its row names."""
        stream = {"stream": self.keys(batch).stream(group.stream)}
        return await self._step("requeue", batch, run=run, extra_keys=stream, group=group.value, entry=entry)

    async def rebind(self, batch: BatchId, run: RunId, epoch: int, candidate: str, judge: str) -> Decision:
        """Bind a parked run's score to another judge; emits its score message anew."""
        return await self._step(
            "rebind",
            batch,
            run=run,
            epoch=epoch,
            candidate=candidate,
            judge=judge,
            command_id=self._runtime.token(),
        )

    async def parked(self, batch: BatchId) -> list[RunId]:
        """Runs whose score waits for a rebind or a person."""
        return sorted(RunId(item.decode()) for item in await self._link.command("SMEMBERS", self.keys(batch).review))

    async def close(self, batch: BatchId, snapshot_id: str, accepted: int) -> Decision:
        """Close the histogram over the snapshot computed from the rows. To be confirmed before it is told of."""
        return await self._step("close", batch, snapshot_id=snapshot_id, accepted=accepted)

    async def confirm(self, batch: BatchId) -> None:
        """Wait until all that was applied for a batch would survive what this bus's durability is about.

        Who may only read waits for nothing: whoever closed the batch has.
        """
        try:
            await self._commit.confirmed()
        except ReplyError as error:
            if error.code != "NOPERM":
                raise

    # --- worker ------------------------------------------------------------------------------------------

    async def claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Mint the one lease of a run, in every fence that the batch declares. Answer: see `bus.port`."""
        decision = await self._step(
            "claim", entry.batch, run=entry.run, lease_id=lease_id, entry=entry.id, consumer=consumer
        )
        if not decision.applied:
            return decision
        answer = decision.answer
        said = {**answer, "turning": bool(answer["turning"]), "wrote": bool(answer["wrote"])}
        return Decision(decision.verb, decision.reason, decision.by, said)

    async def heartbeat(self, group: Group, consumer: ConsumerId, held: Held) -> list[Decision]:
        """Keep what is held alive; one decision a lease, in the order of `held.leases`."""
        batches = sorted({ref.batch for ref in held.leases} | {entry.batch for entry in held.entries})
        beats = []
        for batch in batches:
            leases = [ref for ref in held.leases if ref.batch == batch]
            entries = [entry.id for entry in held.entries if entry.batch == batch]
            for start in range(0, max(len(leases), len(entries)), _BEAT_AT_ONCE):
                piece = slice(start, start + _BEAT_AT_ONCE)
                beats.append(self._beat(group, consumer, batch, leases[piece], entries[piece]))
        answers = {ref: decision for said in await all_of(beats) for ref, decision in said.items()}
        return [answers[ref] for ref in held.leases]

    async def _beat(
        self,
        group: Group,
        consumer: ConsumerId,
        batch: BatchId,
        leases: Sequence[Ref],
        entries: Sequence[EntryId],
    ) -> dict[Ref, Decision]:
        keys = self.keys(batch)
        target = script("run.heartbeat")
        scope: dict[str, object] = {
            **self._scope(batch),
            "stream": keys.stream(group.stream),
            "rows": [keys.run(ref.run) for ref in leases],
        }
        items = [part for ref in leases for part in (ref.run, ref.lease_id, str(ref.gen), str(ref.epoch))]
        fields = {"group": group.on_server, "consumer": consumer, "leases": len(leases), "entries": len(entries)}
        ask = partial(self._send, target, batch, scope, {"items": [*items, *entries]}, fields)
        decisions = await self._settled(batch, ask)
        if len(decisions) != len(leases):  # one answer for all: the batch is not there
            [said] = decisions
            decisions = [said] * len(leases)
        return dict(zip(leases, decisions, strict=True))

    async def seal(self, ref: Ref, parent: Digest, seq: int, payload: str, tree_hash: str, artifact: str) -> Decision:
        """Append the answer, seal, emit the score message, acknowledge the run's entry. Answer: head."""
        check_payload(payload)
        return await self._step(
            "seal", ref.batch, run=ref.run, extra_argv={"payload": payload}, lease_id=ref.lease_id, gen=ref.gen,
            conversation=ref.conversation, parent=parent, seq=seq, head=next_head(parent, payload),
            tree_hash=tree_hash or None, artifact=artifact or None,
        )  # fmt: skip

    async def give_back(self, ref: Ref, machine: str = "", *, seen: bool = False) -> Decision:
        """Hand a run back at once (`yield`): fence the lease, emit a new entry, acknowledge the old."""
        return await self._step(
            "yield",
            ref.batch,
            run=ref.run,
            lease_id=ref.lease_id,
            gen=ref.gen,
            machine=machine or None,
            seen=int(seen) or None,
        )

    async def hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End the run as a named hole."""
        return await self._step(
            "hole", ref.batch, run=ref.run, extra_argv={"detail": detail[:2_000]},
            lease_id=ref.lease_id or None, gen=ref.gen, why=why,
        )  # fmt: skip

    # --- scorer ------------------------------------------------------------------------------------------

    async def score_claim(self, entry: Entry, lease_id: LeaseId, consumer: ConsumerId) -> Decision:
        """Fence the scoring epoch. Answer: epoch, attempts, head, tree_hash, artifact and the bind token."""
        return await self._step(
            "score_claim", entry.batch, run=entry.run, lease_id=lease_id, entry=entry.id, consumer=consumer
        )

    async def score(self, ref: Ref, judgement: Judgement) -> Decision:
        """Sign the score. `ref.gen` is the scoring epoch."""
        return await self._step(
            "score", ref.batch, run=ref.run, lease_id=ref.lease_id, gen=ref.gen, head=judgement.head,
            tree_hash=judgement.tree_hash or None,
            observed_candidate=judgement.candidate or None, observed_judge=judgement.judge or None,
            judge_epoch=judgement.judge_epoch, score_digest=judgement.score_digest, bin=judgement.bin,
            value=judgement.value,
            detail=judgement.detail[:2_000] or None,
        )  # fmt: skip

    async def score_give_back(self, ref: Ref, machine: str = "", *, seen: bool = False) -> Decision:
        """Hand a score back at once."""
        return await self._step(
            "score_yield",
            ref.batch,
            run=ref.run,
            lease_id=ref.lease_id,
            gen=ref.gen,
            machine=machine or None,
            seen=int(seen) or None,
        )

    async def score_hole(self, ref: Ref, why: str, detail: str) -> Decision:
        """End a sealed run as a named hole."""
        return await self._step(
            "score_hole", ref.batch, run=ref.run, extra_argv={"detail": detail[:2_000]},
            lease_id=ref.lease_id or None, gen=ref.gen, why=why,
        )  # fmt: skip

    # --- life --------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close the connections."""
        self._together.close()
        self._commit.close()
        self._syncing.close()
        self._link.close()
        self._reader.close()


def _events(stored: Reply) -> list[Event]:
    """A conversation as it is stored."""
    read = map(StoredEvent.read, stored)
    return [Event(seq, payload, gen) for seq, (gen, _, payload) in enumerate(read, start=1)]


def status_of(value: str) -> BatchStatus:
    """What the registry says of a batch."""
    if Tombstone.read(value) is not None:
        return BatchStatus.PRUNED
    return BatchStatus.OPEN if value == IMPORTED_OPEN else BatchStatus(value)


def _texts(reply: list[bytes | None]) -> list[str]:
    return ["" if field is None else text_of(field) for field in reply]


def _end(run: RunId, reply: list[bytes | None]) -> RunEnd:
    """An end from its fields as `_END` names them."""
    state, epoch, digest, bin_, value, hole = _texts(reply)
    return RunEnd(run, RunState(state), int(epoch or 0), digest, bin_, value, hole)


def _row(run: RunId, reply: list[bytes | None]) -> RunRow:
    """A row from its fields as `_ROW` names them, `state` among those that are there."""
    (
        state, gen, attempts, score_attempts, entry, head, length, epoch, digest, bin_, value, hole, consumer, detail,
        judge_epoch, conversation, tree, artifact,
    ) = _texts(reply)  # fmt: skip
    return RunRow(
        run=run,
        state=RunState(state),
        gen=int(gen or 0),
        attempts=int(attempts or 0),
        score_attempts=int(score_attempts or 0),
        entry=entry,
        head=head or EMPTY_HEAD,
        length=int(length or 0),
        epoch=int(epoch or 0),
        digest=digest,
        bin=bin_,
        value=value,
        hole=hole,
        consumer=consumer,
        detail=detail,
        judge_epoch=int(judge_epoch or 0),
        conversation=int(conversation or 0),
        tree=tree,
        artifact=artifact,
    )
