"""What there is on a server, read without a script: which batches, their counters, runs and conversations."""

from __future__ import annotations

from collections.abc import Sequence

from bus.chain import EMPTY_HEAD
from bus.errors import InputError, NewerBatch
from bus.events import StoredEvent, ends_in
from bus.imported.looking import IMPORTED_OPEN
from bus.keys import registry
from bus.port import BatchInfo, BatchSpec, BatchStatus, Counters, Event, RunEnd, RunRow, RunState
from bus.redis_steps import Steps
from bus.replies import hash_of
from bus.texts import text_of
from bus.tombstones import PrunedError, Tombstone
from bus.types import BatchId, Digest, RunId
from bus.wire import Reply

__all__ = ["Rows", "status_of"]

_INDEX_AT_ONCE = 5_000  # run ids in one read
_ROW = (
    "state", "t.gen", "attempts", "s.attempts", "entry", "t.head", "t.len", "h.epoch", "h.digest", "h.bin", "h.value",
    "h.why", "consumer", "detail", "j.epoch", "conversation", "tree", "artifact",
)  # fmt: skip
_END = ("state", "h.epoch", "h.digest", "h.bin", "h.value", "h.why")
_ROWS_AT_ONCE = 500  # in one write


class Rows(Steps):
    """See the module's text."""

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
        """What a batch declared, or None when there is none of that name.

        Raises InputError for one that was pruned (PrunedError), or that another release declared (NewerBatch).
        """
        spec, status, incarnation, imported = await self._link.command(
            "HMGET", self.keys(batch).batch_row, "spec", "status", "incarnation", "imported"
        )
        if spec is None:
            if tombstone := await self.tombstone(batch):
                raise PrunedError(batch, tombstone)
            return None
        try:
            declared = BatchSpec.from_json(spec)
        except (TypeError, ValueError):
            raise NewerBatch(batch) from None
        return BatchInfo(
            declared,
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
