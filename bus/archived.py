"""How much of a batch's history has left the server while the batch runs, and the two steps by which it leaves.

    claim            become the one who archives the batch, for some seconds; again to go on, with 0 to let go
    retire_segment   what is on a disk and was read back goes from the stream, and the batch's row says so, in one step

The row's word is what readers go by: everything up to `last` stands in `number` segments, whose chain of digests ends
in `digest`; everything behind it is in the stream. `workers.histories.segments` has the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bus.envelopes import encode
from bus.errors import InputError
from bus.keys import BatchKeys
from bus.link import Link
from bus.scripts import script
from bus.types import BatchId, Decision, Digest, EntryId

if TYPE_CHECKING:
    from bus.redis_bus import RedisBus

__all__ = [
    "NOTHING",
    "SEGMENT_FORMAT",
    "ArchivedError",
    "Segment",
    "Standing",
    "began_ms",
    "claim",
    "order_of",
    "retire_segment",
    "standing_of",
]

SEGMENT_FORMAT = "evalbus-history-segment"
"""How the first line of a segment's file says what it is."""
NOTHING = Digest("none")
"""What stands for the digest of the segment before the first."""
_EMPTY_CHAIN = "0" * 64
_BEGINNING = EntryId("")
_FIELDS = ("number", "last", "entries", "digest", "lines", "head", "place", "by")


class ArchivedError(InputError):
    """Entries that were asked for are not on the server any more: they were archived while the batch ran."""

    def __init__(self, batch: BatchId, last: EntryId, place: str) -> None:
        """`last`: the last of them. `place`: `host:/directory`, as the archivist named it."""
        super().__init__(
            f"the history of batch {batch!r} up to entry {last} was archived to {place}",
            remedy="name that directory: --archive DIR",
        )


def order_of(entry: EntryId) -> tuple[int, int]:
    """By what entries are compared; the empty one, for the beginning, comes before all others."""
    ms, _, n = entry.partition("-")
    return (int(ms), int(n or 0)) if entry else (-1, 0)


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a batch is archived, as its row says it; all of it nothing for one that is not."""

    number: int = 0
    """Segments."""
    last: EntryId = _BEGINNING
    """The last entry that is in one."""
    entries: int = 0
    digest: Digest = NOTHING
    """Of the last segment."""
    lines: int = 0
    """Of the export, up to there."""
    head: str = _EMPTY_CHAIN
    """Of the export's chain, there."""
    place: str = ""
    """`host:/directory` as the last archivist named it."""
    by: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of an archive, by what is in it."""

    number: int
    first: EntryId
    last: EntryId
    entries: int
    lines: int
    """Of the export, from the batch's beginning to this segment's end; likewise `head`."""
    head: str
    previous: Digest
    digest: Digest
    """SHA-256 of its content up to the closing line, in which `previous` stands: so the segments are a chain."""


async def standing_of(link: Link, keys: BatchKeys) -> Standing:
    """What the batch's row says now."""
    reply = await link.command("HMGET", keys.batch_row, *(f"archive.{name}" for name in _FIELDS))
    said: Mapping[str, str] = {
        name: value.decode("utf-8", "replace") for name, value in zip(_FIELDS, reply, strict=True) if value is not None
    }
    place, by = said.get("place", ""), said.get("by", "")
    if "number" not in said:
        return Standing(place=place, by=by)
    return Standing(
        number=int(said["number"]),
        last=EntryId(said["last"]),
        entries=int(said["entries"]),
        digest=Digest(said["digest"]),
        lines=int(said["lines"]),
        head=said["head"],
        place=place,
        by=by,
    )


async def began_ms(link: Link, keys: BatchKeys) -> int:
    """When the batch's history began, by the server's clock; 0 when it has no entries."""
    archived = await link.command("HGET", keys.batch_row, "archive.first")
    if archived is None:
        found = await link.command("XRANGE", keys.history, "-", "+", "COUNT", 1)
        archived = found[0][0] if found else b"0"
    return int(archived.partition(b"-")[0])


async def claim(bus: RedisBus, batch: BatchId, archivist: str, by: str, place: str, lease_ms: int) -> Decision:
    """Hold the archive of a batch for `lease_ms` from now on; 0 lets go. `archivist`: a random id of the holder's.

    `reject taken`: somebody else holds it; the answer's `by` names who.
    """
    envelope = {
        "plane": bus.plane.value,
        "batch": batch,
        "archivist": archivist,
        "by": by,
        "place": place,
        "lease_ms": lease_ms,
    }
    return await bus.link.run(script("run.archive_claim"), _places(bus, batch), {"envelope": encode(envelope)})


async def retire_segment(bus: RedisBus, batch: BatchId, archivist: str, epoch: int, segment: Segment) -> Decision:
    """Trim what a segment holds off the stream. To be called when the file is on the disk, and was read back.

    `reject stale_archivist`: somebody else holds the archive by now; recorded. `reject not_next`: the segment does not
    follow what is archived, or nothing would be left in the stream; recorded too.
    """
    envelope = {
        "plane": bus.plane.value,
        "batch": batch,
        "archivist": archivist,
        "epoch": epoch,
        "number": segment.number,
        "first": segment.first,
        "last": segment.last,
        "entries": segment.entries,
        "previous": segment.previous,
        "digest": segment.digest,
        "lines": segment.lines,
        "head": segment.head,
    }
    return await bus.link.run(script("run.archive"), _places(bus, batch), {"envelope": encode(envelope)})


def _places(bus: RedisBus, batch: BatchId) -> dict[str, object]:
    keys = bus.keys(batch)
    return {"batch": keys.batch_row, "history": keys.history}
