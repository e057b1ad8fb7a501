"""The newest refusals of a history, but for those that only say that there is no room yet.

A history may hold a million entries when somebody begins to look. It is not read from its beginning: where its last
entries are is found by halving time (ids begin with the server's milliseconds), with the commands that a reader may
send. From there on only what is new is read, and never more at one look than a few pages: who watches a batch that
is faster than that skips some entries, and is told since when the list is whole.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from bus.archived import began_ms, order_of, standing_of
from bus.entries import Entries
from bus.keys import BatchKeys
from bus.link import Link
from bus.recorded import Recorded
from bus.types import BatchId, EntryId
from bus.wire import Reply
from workers.brief import brief
from workers.explaining.reasons import why_refused
from workers.results.progress import NOT_YET
from workers.watching.view import Refusal

__all__ = ["Tail", "newest"]

_PAGE: Final = 500  # entries in one read
_PAGES: Final = 4  # reads in one look
_KEPT: Final = 50  # refusals
_SHOWN: Final = 60  # characters of a name that somebody else chose
_REFUSED: Final = ("reject", "replay")


def newest(found: Sequence[Sequence[Refusal]], since_ms: int) -> tuple[Refusal, ...]:
    """Of what tails have found, each its newest first, the newest of all; `since_ms`: from when on none is missing."""
    if len(found) == 1:
        return tuple(found[0])
    merged = sorted((one for each in found for one in each if one.ms >= since_ms), key=lambda one: -one.ms)
    return tuple(merged[:_KEPT])


class Tail:
    """The end of one batch's history, from the first look on."""

    def __init__(self, link: Link, keys: BatchKeys, partition: BatchId | None = None) -> None:
        """Reads nothing yet. `partition`: whose history it is, where the batch has several."""
        self._link, self._keys, self._history = link, keys, keys.history
        self._partition = partition or ""
        self._entries = Entries(link, keys)
        self._after = ""
        self._found: deque[Refusal] = deque(maxlen=_KEPT)
        self.began_ms = 0
        """When the history began; 0 when it has no entries."""
        self.since_ms = 0
        """From when on none was left out, by the server's clock."""
        self.archive = ""
        """`host:/directory`, where the older part of the history is; empty where all of it is on the server."""

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """The newest first."""
        return tuple(reversed(self._found))

    async def advance(self, now_ms: int) -> None:
        """Read what is new; `now_ms` is the server's clock."""
        if not self._after:
            first = await self._read("-", 1)
            if not first:
                return
            self.began_ms = await began_ms(self._link, self._keys)
            await self._seek(_ms(first[0]), now_ms)
        # What was archived under a look that is late is not shown, and so nothing before it.
        standing = await standing_of(self._link, self._keys)
        archived, self.archive = standing.last, standing.place if standing.number else ""
        if order_of(archived) > order_of(EntryId(self._after.lstrip("("))):
            await self._seek(int(archived.partition("-")[0]), now_ms)
        for _ in range(_PAGES):
            entries = await self._read(self._after, _PAGE)
            await self._take(entries)
            if len(entries) < _PAGE:
                return
        await self._seek(_ms(entries[-1]), now_ms)

    async def _seek(self, low: int, now_ms: int) -> None:
        """Go to where less than a page is left: from `low` (ms) on if that is little enough, else further on."""
        if len(await self._read(str(low), _PAGE)) < _PAGE:
            self._begin(low)
            return
        high = now_ms + 1
        while high - low > 1:
            middle = (low + high) // 2
            found = len(await self._read(str(middle), _PAGE))
            if found == _PAGE:
                low = middle
            else:
                high = middle
                if found >= _PAGE // 2:
                    break
        self._begin(high)

    def _begin(self, ms: int) -> None:
        if not self._after or self._found:
            self._found.clear()  # a list with a gap in it would be read as whole
        self.since_ms = ms
        self._after = str(ms)

    async def _read(self, start: str, count: int) -> list[Reply]:
        found: list[Reply] = await self._link.command("XRANGE", self._history, start, "+", "COUNT", count)
        return found

    async def _take(self, entries: Sequence[Reply]) -> None:
        for entry in await self._entries.read(entries):
            self._after = f"({entry.id}"
            if (refusal := _refusal(entry, self._partition)) is not None:
                self._found.append(refusal)


def _ms(entry: Reply) -> int:
    return int(entry[0].partition(b"-")[0])


def _refusal(entry: Recorded, partition: str) -> Refusal | None:
    """What an entry refused, if it did."""
    refused = next((part for part in entry.parts if part.verb in _REFUSED), None)
    if refused is None or refused.reason in NOT_YET:
        return None
    reason = refused.reason or ""
    return Refusal(
        entry=entry.id,
        partition=partition,
        ms=int(entry.id.partition("-")[0]),
        run=brief(str(entry.envelope.get("run") or ""), 200),
        who=_who(entry.envelope),
        by=entry.command if refused.fence == "run" else f"{refused.fence}.{refused.op}",
        reason=reason,
        words=why_refused(reason),
    )


def _who(envelope: Mapping[str, object]) -> str:
    """Its name, where it gave one; else under which generation it came."""
    name = envelope.get("consumer")
    if isinstance(name, str) and name:
        return brief(name, _SHOWN)
    gen = envelope.get("gen", envelope.get("epoch"))
    return f"generation {gen}" if isinstance(gen, int) else ""
