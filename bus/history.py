"""The history of a batch: every decision, in the order in which the scripts recorded them, read in pieces."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

from bus.archived import ArchivedError, order_of
from bus.entries import Entries
from bus.keys import BatchKeys
from bus.link import Link
from bus.recorded import Recorded
from bus.types import EntryId

__all__ = ["ALL", "BEGINNING", "read_history", "refusals"]

_AT_ONCE = 500  # entries in one read
ALL = sys.maxsize
BEGINNING = EntryId("")
"""Before the first entry."""


async def read_history(
    link: Link, keys: BatchKeys, after: EntryId = BEGINNING, limit: int = ALL
) -> AsyncIterator[Recorded]:
    """Every entry behind `after` in stream order, or `limit` of them, in pieces: memory does not grow with the history.

    Raises ArchivedError when entries behind `after`, or behind what was yielded, have been archived and trimmed.
    """
    reading = Entries(link, keys)
    while True:
        start = "(" + after if after else "-"
        count = min(limit, _AT_ONCE)
        entries = await link.command("XRANGE", keys.history, start, "+", "COUNT", count)
        # In this order: what is trimmed later than this was still there when it was read.
        last, place = await link.command("HMGET", keys.batch_row, "archive.last", "archive.place")
        if last is not None and order_of(archived := EntryId(last.decode())) > order_of(after):
            raise ArchivedError(keys.batch, archived, place.decode("utf-8", "replace"))
        for entry in await reading.read(entries):
            yield entry
        limit -= count
        if len(entries) < count or limit == 0:
            return
        after = EntryId(entries[-1][0].decode())


async def refusals(link: Link, keys: BatchKeys) -> AsyncIterator[Recorded]:
    """The entries that refused something."""
    async for entry in read_history(link, keys):
        if any(part.verb in ("reject", "replay") for part in entry.parts):
            yield entry
