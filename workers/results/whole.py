"""A batch as its user knows it: one batch, or all the partitions of one, under the name that they have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from bus.cluster import ServerBus
from bus.errors import NewerBatch, ViolationError
from bus.partitions import MOST_PARTS, added, part_name, put_back, root_of, whole_spec
from bus.port import BatchInfo, BatchSpec, BatchStatus, Counters, RunRow
from bus.snapshot import Snapshot
from bus.tombstones import PrunedError
from bus.types import BatchId, RunId
from workers.processes.held_loops import rows_with_held_loops

__all__ = [
    "Closing",
    "Placed",
    "Whole",
    "closing_of",
    "counters_in",
    "counters_of",
    "parked_in",
    "rows_of",
    "runs_of",
    "together",
    "whole_of",
    "wholes",
]


class _Looking(Protocol):
    """What of a bus it takes to find out what there is."""

    async def info(self, batch: BatchId) -> BatchInfo | None:
        """See `bus.port.Bus`."""


@dataclass(frozen=True, slots=True)
class Whole:
    """See the module's text."""

    info: BatchInfo
    """The whole's. Its status is open until all partitions have ended; how, `counters_of` tells."""
    parts: tuple[BatchInfo, ...]
    """Those that are declared; the batch itself where it is not partitioned."""
    of: int
    """How many there are to be."""

    @property
    def batches(self) -> list[BatchId]:
        """The batches that it is on the server."""
        return [one.spec.batch for one in self.parts]

    @property
    def is_partitioned(self) -> bool:
        """Whether these have other names than the whole. A partition that is looked at for itself is one batch."""
        return self.parts[0].spec.batch != self.name

    @property
    def name(self) -> BatchId:
        """By which its user knows it."""
        return self.info.spec.batch

    @property
    def has_ended(self) -> bool:
        """Whether all of it has."""
        return len(self.parts) == self.of and all(one.status.ended for one in self.parts)


async def whole_of(bus: _Looking, name: BatchId) -> Whole | None:
    """What is there under a name; None when there is nothing. A partition's own name means that partition alone.

    Raises PrunedError for what was pruned, be it a partition.
    """
    info = await bus.info(name)
    if info is not None:
        return Whole(info, (info,), 1)
    try:
        first = await bus.info(part_name(name, 1))
        if first is None or first.spec.part is None:
            return None
        of = first.spec.part.of
        rest = [await bus.info(part_name(name, number)) for number in range(2, of + 1)]
    except PrunedError as gone:
        raise await _pruned(bus, name, gone) from None
    parts = (first, *(one for one in rest if one is not None))
    ended = len(parts) == of and all(one.status.ended for one in parts)
    root = replace(
        first, spec=whole_spec([one.spec for one in parts]), status=first.status if ended else BatchStatus.OPEN
    )
    return Whole(root, parts, of)


async def _pruned(bus: _Looking, name: BatchId, gone: PrunedError) -> PrunedError:
    """What is said of a batch of which a partition has gone: by its own name, and whether others are there yet."""
    for number in range(1, MOST_PARTS + 1):
        try:
            if (left := await bus.info(part_name(name, number))) is not None and left.spec.part is not None:
                return PrunedError(gone.batch, gone.tombstone, of=name, rest=True)
        except PrunedError:
            continue
        break
    return PrunedError(gone.batch, gone.tombstone, of=name)


async def wholes(bus: _Looking, names: Collection[BatchId]) -> list[Whole]:
    """What batches of these names are to their user: partitions together, under the name that they have in common.

    A partition of which others were pruned stands by itself, and what was pruned is none of them, nor is what this
    release cannot read.
    """
    found, rest = [], set(names)
    for root in sorted({root_of(name) for name in names}):
        with suppress(PrunedError, NewerBatch):
            if (whole := await whole_of(bus, root)) is not None:
                found.append(whole)
                rest -= {*whole.batches}
    for name in sorted(rest):  # it is only called like a partition, or the others are gone
        with suppress(PrunedError, NewerBatch):
            if (whole := await whole_of(bus, name)) is not None:
                found.append(whole)
    return sorted(found, key=lambda whole: whole.info.spec.batch)


async def counters_of(bus: ServerBus, whole: Whole) -> Counters:
    """Progress, of all parts together."""
    return together(whole, await counters_in(bus, whole))


async def counters_in(bus: ServerBus, whole: Whole) -> list[Counters]:
    """Progress in each of `whole.parts`."""
    return [await bus.counters(batch) for batch in whole.batches]


def together(whole: Whole, found: Sequence[Counters]) -> Counters:
    """Of what was counted in each part, the whole's."""
    return added(whole.info.spec, found, whole.of) if whole.is_partitioned else found[0]


@dataclass(frozen=True, slots=True)
class Placed:
    """A run's row, and where it is."""

    at: BatchInfo
    """The partition; the batch itself where there are none."""
    row: RunRow

    @property
    def batch(self) -> BatchId:
        """Its name there, by which commands about the run go."""
        return self.at.spec.batch


async def runs_of(bus: ServerBus, whole: Whole) -> dict[RunId, BatchInfo]:
    """Every run that there is so far, in the order of the suite, and the partition that has it."""
    return dict(put_back([[(run, one) for run in await bus.run_ids(one.spec.batch)] for one in whole.parts]))


async def rows_of(bus: ServerBus, whole: Whole) -> list[Placed]:
    """Every run's, in the order of the suite, as if they had not been dealt out."""
    return put_back([[Placed(one, row) for row in await _rows_in(bus, one.spec.batch)] for one in whole.parts])


async def _rows_in(bus: ServerBus, batch: BatchId) -> list[RunRow]:
    return await rows_with_held_loops(bus, batch, await bus.run_ids(batch))


async def parked_in(bus: ServerBus, whole: Whole) -> list[Placed]:
    """The runs whose score waits for a person, by name."""
    found = []
    for one in whole.parts:
        name = one.spec.batch
        found += [Placed(one, row) for row in await bus.rows(name, await bus.parked(name))]
    return sorted(found, key=lambda placed: placed.row.run)


@dataclass(frozen=True, slots=True)
class Closing:
    """What a batch that has ended came to, computed from its rows."""

    counters: Counters
    snapshot: Snapshot
    details: Mapping[RunId, str]
    """Run to what its solver or scorer said last, where it said anything."""


async def closing_of(bus: ServerBus, whole: Whole) -> Closing:
    """For one that has ended. What all that waits for in the way of durability is waited for first.

    Raises ViolationError when a partition's rows do not give the snapshot under which it was closed: then the whole's
    would not be true either.
    """
    rows: list[RunRow] = []
    for one in whole.parts:
        await bus.confirm(one.spec.batch)  # or a number is quoted that the server may yet forget
        found = await _rows_in(bus, one.spec.batch)
        if whole.is_partitioned:
            await _check(bus, one.spec, found)
        rows += found
    counters = await counters_of(bus, whole)
    snapshot = Snapshot.from_rows(rows, whole.info.spec)
    if whole.is_partitioned and counters.status is BatchStatus.CLOSED:
        counters = replace(counters, snapshot_id=snapshot.snapshot_id)
    return Closing(counters, snapshot, {row.run: row.detail for row in rows if row.detail})


async def _check(bus: ServerBus, spec: BatchSpec, rows: list[RunRow]) -> None:
    """A partition that ended below its quorum has no snapshot to be compared."""
    counters = await bus.counters(spec.batch)
    given = Snapshot.from_rows(rows, spec).snapshot_id
    if counters.status is BatchStatus.CLOSED and given != counters.snapshot_id:
        raise ViolationError(f"batch {spec.batch} closed as {counters.snapshot_id}, but its rows give {given}")
