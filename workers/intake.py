"""What a consumer takes next, of the batches that it serves.

own:    its own pending entries first (at the start, and after each lost connection: an answer may have been lost on the
        way, and its entries are ours), unless another live process has the same name (`workers.namesakes`).
idle:   each fifth of a lease time those of silent consumers.
new:    what nobody had. One read takes no more than a sixteenth of its batches' runs. A small batch would else go whole
        into the free slots of who comes first, and its runs share a process while another one idles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from bus.port import Bus, Entry, Group, Runtime
from bus.types import ConsumerId
from workers.catalogue import Served
from workers.lease import Holding, Lease
from workers.namesakes import Namesakes
from workers.quarantine import Quarantine
from workers.waiting import pause

__all__ = ["LONGEST_READ_MS", "Intake"]

log = structlog.get_logger("evalbus.consumer")

LONGEST_READ_MS: Final = 500
"""How long one read waits; also how soon a stop or a new batch is noticed."""
_OWN_AT_ONCE = 1_000  # own pending entries asked for at once; more than any number of slots
_SHARE = 16  # one read takes this part of its batches' runs at most


class Intake:
    """See the module's text. One a consumer; it puts nothing into `holding` itself."""

    def __init__(
        self,
        bus: Bus,
        runtime: Runtime,
        group: Group,
        name: ConsumerId,
        holding: Holding,
        quarantine: Quarantine,
        stopping: asyncio.Event,
        *,
        independent: bool,
    ) -> None:
        """`independent`: see `workers.consumer.Consumer`. `stopping`: nothing new is waited for, nor read, once set."""
        self._bus, self._runtime, self._group, self._name = bus, runtime, group, name
        self._holding, self._quarantine, self._stopping = holding, quarantine, stopping
        self._independent = independent
        self._namesakes = Namesakes()
        self._seen_connections = -1
        self._next_idle_scan = 0.0

    async def next(self, served: Sequence[Served], free: int) -> list[Lease]:
        """At most `free` entries of these batches; none when there are none for a while. Not empty: `served`."""
        batches = [one.batch for one in served]
        if self._bus.connections != self._seen_connections:
            self._namesakes.connected(self._bus.connections, self._runtime.now())
            own = await self._bus.own_pending(self._group, self._name, batches, _OWN_AT_ONCE)
            unknown = self._not_a_namesakes(self._unknown(own, served, redelivered=True))
            if len(unknown) <= free:
                self._seen_connections = self._bus.connections
            if unknown:
                return unknown[:free]
        if unknown := await self.take_over(served, free):
            return unknown
        block_ms = min(LONGEST_READ_MS, max(10, int((self._next_idle_scan - self._runtime.now()) * 1000)))
        if self._would_wait():
            await pause(self._stopping, block_ms / 1000)
            return []
        if self._stopping.is_set():  # while we looked: what waits now would hold up the stop
            return []
        most = min(free, self._share(served))
        return self._unknown(await self._bus.read(self._group, self._name, batches, most, block_ms), served)

    async def take_over(self, served: Sequence[Served], most: int) -> list[Lease]:
        """Entries of silent consumers, `most` of them, when it is time to look for them."""
        if self._runtime.now() < self._next_idle_scan:
            return []
        lease = min(one.lease for one in served)
        self._next_idle_scan = self._runtime.now() + lease / 5 * (0.75 + 0.5 * self._runtime.jitter())
        batches = [one.batch for one in served]
        idle = await self._bus.take_idle(self._group, self._name, batches, most, int(lease * 1000))
        unknown = self._unknown(idle, served, redelivered=True)
        if unknown:
            log.info("entries.taken", group=self._group.value, count=len(unknown))
        if len(unknown) >= most:  # there may be more: they are looked for as soon as there is room, not a fifth later
            self._next_idle_scan = self._runtime.now()
        return unknown

    def lost(self, lease: Lease, *, stale: bool = False) -> None:
        """A lease in hand is void. Its entry may still be ours: a restart voids leases, and no deliveries.

        `stale`: another one was granted, perhaps to a process of our name.
        """
        if stale:
            self._namesakes.fenced((lease.entry.batch, lease.entry.id), self._runtime.now(), lease.served.lease)
        self._seen_connections = -1

    def _not_a_namesakes(self, own: list[Lease]) -> list[Lease]:
        """Of the entries under our name, those that no other process of that name seems to hold."""
        now, ours = self._runtime.now(), []
        for lease in own:
            entry = lease.entry
            if self._namesakes.has((entry.batch, entry.id), now, lease.served.lease):
                why = "another live process seems to have this name: give each a --name of its own"
                log.error("consumer.namesake", batch=entry.batch, run=entry.run, name=self._name, why=why)
            else:
                ours.append(lease)
        return ours

    def _share(self, served: Sequence[Served]) -> int:
        if self._independent:  # a run may ask for any number of them at once, and they wait for others than us
            return _OWN_AT_ONCE
        return max(1, sum(len(one.runs) for one in served) // _SHARE)

    def _would_wait(self) -> bool:
        """Whether what is read now could not be driven here, while another process might."""
        if self._independent:
            return self._quarantine.is_closed
        return any(lease.waiting for lease in self._holding.values())

    def _unknown(self, entries: Sequence[Entry], served: Sequence[Served], *, redelivered: bool = False) -> list[Lease]:
        if not entries:  # most looks
            return []
        by_name = {one.batch: one for one in served}
        new = [entry for entry in entries if (entry.batch, entry.id) not in self._holding]
        return [Lease(entry, by_name[entry.batch], redelivered) for entry in new]
