"""What a batch is now, asked of the server by its name; what is not there is answered with the nearest names."""

from __future__ import annotations

from dataclasses import dataclass

from bus.cluster import ServerBus
from bus.errors import BatchMissing, InputError
from bus.partitions import part_name
from bus.port import BatchInfo
from bus.types import BatchId
from workers.gating.baseline import with_own_baseline
from workers.results.missing import no_such_batch
from workers.results.outcome import Outcome
from workers.results.whole import Closing, Whole, closing_of, counters_of, whole_of

__all__ = ["Fetched", "existing", "fetch_outcome", "fetched", "info_of"]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a batch is now."""

    outcome: Outcome
    whole: Whole
    closing: Closing | None
    """None until it has ended."""


async def fetch_outcome(bus: ServerBus, batch: BatchId) -> Outcome:
    """What a batch is now, beside the baseline of its suite; for an ended one the snapshot is computed again."""
    found = await fetched(bus, batch)
    info = found.whole.info
    return found.outcome if info.imported else with_own_baseline(found.outcome, info.spec.suite_path)


async def fetched(bus: ServerBus, batch: BatchId) -> Fetched:
    """What a batch is now, with what it is made of. Raises InputError when there is none of that name."""
    whole = await existing(bus, batch)
    counters = await counters_of(bus, whole)
    if not counters.status.ended:
        return Fetched(Outcome.of(whole.info, counters, None), whole, None)
    if not whole.has_ended:  # it has since
        return await fetched(bus, batch)
    closing = await closing_of(bus, whole)
    return Fetched(Outcome.of(whole.info, closing.counters, closing.snapshot, closing.details), whole, closing)


async def existing(bus: ServerBus, batch: BatchId) -> Whole:
    """What is there under a name. Raises InputError, with the nearest names, when there is nothing."""
    whole = await whole_of(bus, batch)
    if whole is None:
        raise BatchMissing(batch, await no_such_batch(bus, batch))
    return whole


async def info_of(bus: ServerBus, batch: BatchId) -> BatchInfo:
    """What a batch declared. Raises InputError, with the nearest names, when there is none of that name.

    Also for one that is kept in partitions: each of those has a history of its own.
    """
    info = await bus.info(batch)
    if info is None:
        whole = await whole_of(bus, batch)
        if whole is not None:
            first, last = part_name(batch, 1), part_name(batch, whole.of)
            raise InputError(f"batch {batch!r} is kept in {whole.of} partitions", remedy=f"name one: {first} to {last}")
        raise BatchMissing(batch, await no_such_batch(bus, batch))
    return info
