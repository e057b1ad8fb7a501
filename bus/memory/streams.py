"""Streams with consumer groups, in memory: what the in-memory bus has in the server's place.

Only what the bus relies on: an entry is delivered once as new, stays pending for the consumer that it was given to,
goes on ageing until it is renewed, and moves to whoever claims it. An acknowledged entry is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from bus.types import ConsumerId, EntryId

__all__ = ["MemoryStream", "Pending"]


@dataclass(slots=True)
class Pending:
    """An entry that somebody was given. `since`: seconds on the stream's clock at which its idle time began."""

    consumer: ConsumerId
    since: float


@dataclass(slots=True)
class MemoryStream:
    """One stream and the one group that reads it. `now` is the bus's clock, in seconds."""

    now: Callable[[], float]
    entries: dict[EntryId, Mapping[str, str]] = field(default_factory=dict)
    """What has not been handled yet, in order."""
    pending: dict[EntryId, Pending] = field(default_factory=dict)
    """What was delivered and not acknowledged, in the order of the stream."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there is an entry that nobody was given."""
    _new: dict[EntryId, None] = field(default_factory=dict)
    _last: tuple[int, int] = (0, 0)

    def add(self, fields: Mapping[str, str]) -> EntryId:
        """Append an entry. Ids grow also when the clock stands still or goes back."""
        ms = int(self.now() * 1000)
        self._last = (ms, 0) if ms > self._last[0] else (self._last[0], self._last[1] + 1)
        entry = EntryId(f"{self._last[0]}-{self._last[1]}")
        self.entries[entry] = fields
        self._new[entry] = None
        self.arrived.set()
        return entry

    def deliver(self, consumer: ConsumerId, count: int) -> list[EntryId]:
        """New entries, at most `count`, pending for the consumer from now on."""
        given = list(islice(self._new, count))
        for entry in given:
            self.pending[entry] = Pending(consumer, self.now())
            self._no_longer_new(entry)
        return given

    def undelivered(self) -> bool:
        """Whether there is an entry that nobody was given."""
        return bool(self._new)

    def knows(self, entry: EntryId) -> bool:
        """Whether the group will still give this one to somebody, or has given it and waits for its end."""
        return entry in self.pending or entry in self._new

    def redeliver(self, consumer: ConsumerId, count: int) -> list[EntryId]:
        """What is pending for a consumer, at most `count`; given to it once more, so it is not idle."""
        own = list(islice((entry for entry in self.pending if self.owns(entry, consumer)), count))
        for entry in own:
            self.renew(entry, consumer)
        return own

    def owns(self, entry: EntryId, consumer: ConsumerId) -> bool:
        """Whether the entry is pending for this consumer."""
        at = self.pending.get(entry)
        return at is not None and at.consumer == consumer

    def take_idle(self, consumer: ConsumerId, count: int, idle: float) -> list[EntryId]:
        """Entries idle for at least `idle` seconds, at most `count`, now pending for this consumer."""
        now = self.now()
        taken = list(islice((entry for entry, at in self.pending.items() if now - at.since >= idle), count))
        for entry in taken:
            self.renew(entry, consumer)
        return taken

    def renew(self, entry: EntryId, consumer: ConsumerId) -> None:
        """Make it the consumer's, its idle time 0; nothing when it is not pending."""
        if entry in self.pending:
            self.pending[entry] = Pending(consumer, self.now())

    def acknowledge(self, entry: EntryId) -> None:
        """It has been handled: off the pending list, and deleted."""
        self.pending.pop(entry, None)
        self.entries.pop(entry, None)
        self._no_longer_new(entry)

    def lose_group(self, *, at_end: bool = False) -> None:
        """The group is made anew. At the beginning: what was not handled is delivered again; at the end: it is lost."""
        self.pending.clear()
        self._new = {} if at_end else dict.fromkeys(self.entries)
        if self._new:
            self.arrived.set()
        else:
            self.arrived.clear()

    def new(self) -> dict[EntryId, None]:
        """What nobody was given, in order; a copy."""
        return dict(self._new)

    @property
    def last(self) -> tuple[int, int]:
        """The last entry's id."""
        return self._last

    def put_back(
        self,
        entries: dict[EntryId, Mapping[str, str]],
        pending: dict[EntryId, Pending],
        new: dict[EntryId, None],
        last: tuple[int, int],
    ) -> None:
        """It is as it was. Whoever waits for an entry waits for one of these."""
        self.entries, self.pending, self._new, self._last = entries, pending, new, last
        if new:
            self.arrived.set()
        else:
            self.arrived.clear()

    def _no_longer_new(self, entry: EntryId) -> None:
        self._new.pop(entry, None)
        if not self._new:
            self.arrived.clear()
