"""Which batches are left on a server: those that nobody works on, and those that only take room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from bus.errors import ReplyError
from bus.keys import BatchKeys, registry
from bus.redis_rows import status_of
from bus.replies import pairs_of
from bus.rests import Resting, resting_at
from bus.topology import Primary
from bus.types import BatchId, Plane
from bus.values import BatchStatus, Group
from bus.wire import Reply, Wire
from workers.checkup.findings import Finding, Level

__all__ = ["Left", "find_left", "find_resting", "judge_left", "judge_resting"]

_SILENT = 60.0  # seconds: each role asks for its entries, or renews them, several times a minute
_NAMED = 3
_MANY = 1_000  # consumers of one batch that are gone: each is a name that the server keeps


@dataclass(frozen=True, slots=True)
class Left:
    """One batch that is there."""

    batch: BatchId
    status: BatchStatus
    present: int = 0
    """Consumers that were heard within the last minute; of an open batch only."""
    silent: int = 0
    """Those that were not."""
    pending: int = 0
    """Entries delivered to silent ones, and not acknowledged."""


async def find_left(primaries: Sequence[Primary], plane: Plane) -> list[Left]:
    """Of all shards of a plane. Raises ServerUnreachable, ReplyError."""
    found = []
    for primary in primaries:
        wire = await Wire.open(primary.target.address(), silence=5.0)
        try:
            for shard in primary.shards:
                found += [one async for one in _of_shard(wire, plane, shard)]
        finally:
            wire.close()
    return sorted(found, key=lambda one: one.batch)


async def find_resting(primaries: Sequence[Primary], plane: Plane) -> list[Resting]:
    """Who takes no work on a plane. Raises ServerUnreachable, ReplyError."""
    for primary in primaries:
        if 0 in primary.shards:
            wire = await Wire.open(primary.target.address(), silence=5.0)
            try:
                return await resting_at(wire, plane, 0)
            finally:
                wire.close()
    return []


def judge_resting(resting: Sequence[Resting]) -> list[Finding]:
    """Machines that something is wrong with."""
    remedy = "it works again by itself when that is put right"
    return [Finding("machines", Level.WARNING, one.line, remedy) for one in resting]


async def _of_shard(wire: Wire, plane: Plane, shard: int) -> AsyncIterator[Left]:
    flat = await wire.call("HGETALL", registry(plane, shard))
    for name, told in pairs_of(flat).items():
        batch, status = BatchId(name.decode()), status_of(told.decode(errors="replace"))
        if status.ended or status is BatchStatus.PRUNED:
            yield Left(batch, status)
            continue
        keys = BatchKeys(plane, batch, shard)
        asked = [("XINFO", "CONSUMERS", keys.stream(group.stream), group.on_server) for group in Group]
        consumers = [one for reply in await wire.calls(asked) for one in _consumers(reply)]
        gone = [one for one in consumers if one["idle"] > _SILENT * 1000]
        yield Left(batch, status, len(consumers) - len(gone), len(gone), sum(one["pending"] for one in gone))


def _consumers(reply: Reply | ReplyError) -> list[dict[str, int]]:
    """Idle milliseconds and pending entries of each; none of a stream that is not there yet, or not ours to look at."""
    if isinstance(reply, ReplyError):
        return []
    found = []
    for flat in reply:
        fields = pairs_of(flat)
        found.append({"idle": int(fields[b"idle"]), "pending": int(fields[b"pending"])})
    return found


def judge_left(left: Sequence[Left]) -> list[Finding]:
    """What to do about them."""
    ask = "batches"
    open_ones = [one for one in left if not one.status.ended and one.status is not BatchStatus.PRUNED]
    alone = [one for one in open_ones if not one.present]
    ended = sum(one.status.ended for one in left)
    found = [Finding(ask, Level.OK, f"{len(open_ones)} open, {ended} ended")]
    if alone:
        names = ", ".join(one.batch for one in alone[:_NAMED]) + (", …" if len(alone) > _NAMED else "")
        first = alone[0].batch
        answer = f"{len(alone)} open and nobody works on them: {names}"
        remedy = f"evalbus run SUITE --batch {first} goes on with it; evalbus status {first} shows how far it is"
        found.append(Finding(ask, Level.WARNING, answer, remedy))
    if ended:
        found.append(
            Finding(ask, Level.OK, f"{ended} ended ones take memory", "evalbus prune archives and removes them")
        )
    crowded = [one for one in open_ones if one.silent > _MANY]
    if crowded:
        one = crowded[0]
        found.append(
            Finding("consumers", Level.WARNING, f"{one.batch} has {one.silent:,} that were not heard for a minute",
                    "workers start and die too often: see their logs")
        )  # fmt: skip
    elif open_ones:
        present, silent = sum(one.present for one in open_ones), sum(one.silent for one in open_ones)
        pending = sum(one.pending for one in open_ones)
        answer = f"{present} heard within a minute, {silent} not, with {pending} entries that others will claim"
        found.append(Finding("consumers", Level.OK, answer))
    return found
