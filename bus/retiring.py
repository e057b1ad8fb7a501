"""Removing a batch from the server, once its archive is known to be true; `workers.histories.pruning` is the command.

    retire      one step: the batch is what was archived, and it is gone; a tombstone stands in its place
    clear       its other keys, in pieces: nobody finds them any more, and no script adds to them

Whoever dies in between leaves a tombstone that says `pruning`; `clear` goes on from there, also when two are at it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bus.envelopes import encode
from bus.keys import batch_of, every_batch
from bus.redis_bus import RedisBus
from bus.scripts import script
from bus.tombstones import Tombstone
from bus.types import BatchId, Decision, EntryId

__all__ = ["Archived", "clear", "remove_keys", "retire"]

_SCANNED = 1_000  # keys that one SCAN looks at: about a millisecond of the server
_AT_ONCE = 500  # keys in one script


@dataclass(frozen=True, slots=True)
class Archived:
    """A batch as it stands in a file that was checked."""

    batch: BatchId
    incarnation: str
    last: EntryId
    """Of its history: what comes behind it is in no file."""
    tombstone: Tombstone


async def retire(bus: RedisBus, archived: Archived, others: Sequence[BatchId]) -> Decision:
    """Put the tombstone in the batch's place. `others`: every other batch that is open.

    `reject not_archived`: something was recorded since; archive it again. `in_doubt others_changed`: a batch was
    opened since. `reject source_in_use`: an open batch scores its runs anew; the answer's `by` names it.
    """
    keys, target = bus.keys(archived.batch), script("run.retire")
    envelope = {
        "plane": bus.plane.value,
        "batch": archived.batch,
        "incarnation": archived.incarnation,
        "last": archived.last,
        "tombstone": archived.tombstone.text(),
        "others": len(others),
    }
    places = {
        "batch": keys.batch_row,
        "registry": keys.registry,
        "history": keys.history,
        "others": [bus.keys(other).batch_row for other in others],
    }
    return await bus.link.run(target, places, {"envelope": encode(envelope), "names": list(others)})


async def clear(bus: RedisBus, retired: Mapping[BatchId, Tombstone]) -> int:
    """Delete what is left of retired batches; how many keys that was.

    It leaves a name alone as soon as another tombstone, or a batch, stands there, or one is being imported. A scan
    finds whatever was there from its beginning to its end; since nothing is added to a retired batch, that is all. One
    scan serves them all: it goes through the keys of the whole server anyway.
    """
    if not retired:
        return 0
    everything = {name: bus.keys(name).every for name in retired}
    pattern = next(iter(everything.values())) if len(everything) == 1 else every_batch(bus.plane, bus.shard)
    removed, cursor = 0, "0"
    while True:
        reply, found = await bus.link.command("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
        cursor = reply.decode()
        for name, doomed in _by_batch(bus, retired, [key.decode("utf-8", "surrogatepass") for key in found]).items():
            for start in range(0, len(doomed), _AT_ONCE):
                decision = await remove_keys(bus, name, retired[name], doomed[start : start + _AT_ONCE])
                removed += int(decision.answer.get("removed", 0))
        if cursor == "0":
            break
    for name, tombstone in retired.items():
        if not tombstone.cleared:
            await remove_keys(bus, name, tombstone, [], becomes=replace(tombstone, cleared=True))
    return removed


def _by_batch(bus: RedisBus, retired: Mapping[BatchId, Tombstone], found: Sequence[str]) -> dict[BatchId, list[str]]:
    """Which of the keys are whose; those of other batches are left out."""
    doomed: dict[BatchId, list[str]] = {}
    for key in found:
        name = batch_of(bus.plane, key, bus.shard)
        if name in retired:
            doomed.setdefault(name, []).append(key)
    return doomed


async def remove_keys(
    bus: RedisBus, batch: BatchId, tombstone: Tombstone, doomed: Sequence[str], becomes: Tombstone | None = None
) -> Decision:
    """One call of `run.remove`: the keys go, and with `becomes` the tombstone says that they were the last."""
    envelope = {
        "plane": bus.plane.value,
        "batch": batch,
        "tombstone": tombstone.text(),
        "doomed": len(doomed),
        "becomes": None if becomes is None else becomes.text(),
    }
    keys = bus.keys(batch)
    places = {"batch": keys.batch_row, "registry": keys.registry, "doomed": list(doomed)}
    return await bus.link.run(script("run.remove"), places, {"envelope": encode(envelope)})
