"""What worker and scorer share: take entries into free slots, keep alive what is held, let go what was fenced.

read:   what it had before, what silent consumers left, what is new (`workers.intake`).
hold:   no prefetch beyond the free slots. Every entry in memory is renewed each third of a lease time, those that
        wait to be claimed too.
drive:  many at a time, but alone what somebody held before: it may be what that one died of (`workers.quarantine`).
        All consumers of a process share that: what dies takes the others' entries with it.
give:   a run that only waits, for room at an endpoint or for its tool calls, goes back, uncounted, when one that
        somebody held before wants to be alone: that one may be what it waits for, and nobody else will give it up.
wait:   what cannot be claimed yet stays ours and is renewed, but takes no slot: what it waits for may need that one.
        Meanwhile nothing new is read; it would wait, too.
rest:   a machine on which one could not be driven (its disk is full, say) hands it back and takes nothing for a while.
        It would be the quickest of all to fail at the next one, and the one after (`workers.processes.breaker`).
        Where so many machines have done so that it must be the run, the run is ended, and the machine goes on.
        A process that has no file left to open ends: no rest closes what the suite's code left open.
fenced: a beat that is refused cancels the task that held the lease. CancelledError is no Exception, so a solver
        does not swallow it by accident; and everything that it still says is refused by the scripts anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import structlog

from bus.errors import ArtifactMissing, EvalbusError, MachineError, ServerError
from bus.port import BatchSpec, Bus, Entry, Group, Held, Runtime
from bus.types import ConsumerId, Digest, LeaseId
from workers.catalogue import Served
from workers.closing import Closable, close, ended
from workers.intake import LONGEST_READ_MS, Intake
from workers.lease import Holding, Lease
from workers.processes.breaker import Breaker, Told, look
from workers.processes.machine import Disks, fault_of, machine_error, spent
from workers.quarantine import Owner, Quarantine
from workers.suite import Suite
from workers.waiting import Opened, pause, unless

__all__ = ["Consumer", "Handler", "Serving"]

log = structlog.get_logger("evalbus.consumer")

_LOOK_EVERY = 1.0  # seconds between two looks at the registry of batches, and at the disks
_LONGEST_ENTRY = 4_096  # bytes: a run, an intent, a tool. More is nobody's of ours, and would fit into no envelope
_SHORTEST, _LONGEST_PAUSE = 0.01, LONGEST_READ_MS / 1000  # seconds of a pause, in which nothing is read


class Serving(Protocol):
    """Which batches a consumer serves: `workers.catalogue.Catalogue`, or some of its batches."""

    prepare: Callable[[Suite, BatchSpec], None] | None

    async def open_batches(self) -> list[Served]:
        """The batches to serve now."""

    async def ended(self) -> bool:
        """True when the one batch that was asked for has ended."""


class Handler(Protocol):
    """What a role does with one entry."""

    async def handle(self, lease: Lease, served: Served, lease_id: LeaseId) -> float | None:
        """Claim the entry under `lease_id`, set `lease.ref`, and drive it to its end.

        Returns the seconds after which to try again when it cannot be claimed yet; None when no more is to be done.
        """

    def prepare(self, suite: Suite, spec: BatchSpec) -> None:
        """Before the first entry of a batch, in a thread: import its suite's code, see that it can be served here.

        Raises InputError.
        """

    def forget_all_but(self, suites: Collection[Digest]) -> Sequence[Closable]:
        """Only batches of these suites, by their digests, are in hand: what was prepared for others is dropped.

        Returns what of it has something open, and is to be closed now: that may take time.
        """

    def time_of(self, served: Served) -> float:
        """Seconds that the suite's code may take over one entry."""

    async def give_back(self, lease: Lease, fault: MachineError | None = None) -> bool:
        """Hand back what the lease still holds: its task was cancelled by a stop, or by `fault` it can't be done here.

        False when by then it is the run's own doing, and no machine's: then it was ended instead.
        """


class Consumer:
    """See the module's text. One per process and group."""

    def __init__(
        self,
        bus: Bus,
        runtime: Runtime,
        group: Group,
        name: ConsumerId,
        catalogue: Serving,
        handler: Handler,
        slots: int | None = None,
        *,
        independent: bool = False,
        quarantine: Quarantine | None = None,
        opened: Opened | None = None,
        disks: Disks | None = None,
        told: Told | None = None,
    ) -> None:
        """`slots`: how many entries are driven at a time; by default what the served suites say.

        `independent`: each entry waits for something of its own, so others are read while some wait; and the handler
        itself sees to it that a suspect is alone. `quarantine`: the process's; by default no other consumer is in it.
        `opened`: waits, at most so many seconds, until there may be a batch to serve; by default the clock alone does.
        `disks`: those that must have room before anything is taken; by default none is looked at. `told`: see
        `Breaker`.
        """
        self._bus, self._runtime, self._group, self._name = bus, runtime, group, name
        self._catalogue, self._handler, self._given_slots = catalogue, handler, slots
        catalogue.prepare = handler.prepare
        self._independent = independent
        self._holding: Holding = {}
        self._quarantine = quarantine or Quarantine()
        self._opened = opened
        self._served: list[Served] = []
        self._closing: set[asyncio.Task[None]] = set()
        """What ended suites had open."""
        self._stopping = asyncio.Event()
        self._freed = asyncio.Event()
        self._intake = Intake(
            bus, runtime, group, name, self._holding, self._quarantine, self._stopping, independent=independent
        )
        self._failure: EvalbusError | None = None
        self._breaker, self._disks, self._looked_at_disks = Breaker(runtime, told), disks, float("-inf")

    def stop(self) -> None:
        """Take nothing new and hand back what is held."""
        self._stopping.set()
        self._freed.set()

    async def run(self) -> None:
        """Serve until stopped, or until the one batch that was asked for has ended. Raises EvalbusError."""
        beat = asyncio.create_task(self._beat_for_ever())
        try:
            await self._serve()
        finally:
            await self._let_go()
            await ended(self._closing)
            beat.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beat
        if self._failure is not None:
            raise self._failure

    def patience(self) -> float:
        """How many seconds the event loop may be away before it is given up; 0 while nothing is served.

        The leases in hand are lost by then, and whoever holds the loop has had all its time. Any thread may call it.
        """
        held = [lease.served for lease in list(self._holding.values())]
        return max((max(2 * one.lease, self._handler.time_of(one)) for one in held or self._served), default=0.0)

    def lease(self) -> float:
        """After how many seconds without a beat the first of what is held is taken by others; 0 while nothing is.

        Any thread may call it.
        """
        held = list(self._holding.values())
        return min((lease.served.lease for lease in held), default=0.0)

    # --- reading -----------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        looked = float("-inf")
        while not self._stopping.is_set() and self._failure is None:
            if self._runtime.now() - looked >= _LOOK_EVERY:
                looked = self._runtime.now()
                self._take_up(await self._catalogue.open_batches())
                if not self._served and await self._catalogue.ended():
                    return
            free = self._slots(self._served) - sum(not lease.waiting for lease in self._holding.values())
            if not self._served and self._opened is not None:
                await unless(self._stopping, self._opened(_LOOK_EVERY))
                looked = float("-inf")
            elif not self._served:
                await pause(self._stopping, _LONGEST_PAUSE)
            elif await self._rests():
                await pause(self._stopping, min(max(self._breaker.seconds, _SHORTEST), _LONGEST_PAUSE))
            elif (free := self._breaker.room(free, len(self._tried()))) <= 0:
                if all(self._only_waits(lease) for lease in self._holding.values()):
                    for lease in await self._intake.take_over(self._served, 1):
                        self._start(lease)
                await self._wait_for_a_slot()
            else:
                for lease in await self._intake.next(self._served, free):
                    self._start(lease)

    async def _rests(self) -> bool:
        """Whether this machine takes nothing now."""
        breaker = self._breaker
        if breaker.is_on and not breaker.seconds:
            await unless(self._stopping, breaker.look())  # it may hang for a lease time
            if breaker.is_on:
                self._failure = self._failure or spent()
        if not breaker.is_on and (why := self._full_disk()):
            recheck = self._disks.recheck if self._disks is not None else None
            await breaker.begin(machine_error(why, recheck), min(one.lease for one in self._served))
        if any(breaker.has_lasted(self._runtime.now() - since) for since in self._tried()):
            await breaker.went_well()
        return breaker.is_on

    def _full_disk(self) -> str:
        """Which disk has no room, as of a second ago."""
        now = self._runtime.now()
        if self._disks is None or now - self._looked_at_disks < _LOOK_EVERY:
            return ""
        self._looked_at_disks = now
        return self._disks.full()

    def _tried(self) -> list[float]:
        return [lease.tries for lease in self._holding.values() if lease.tries is not None]

    def _take_up(self, served: list[Served]) -> None:
        self._served = served
        held = [lease.served for lease in self._holding.values()]
        for one in self._handler.forget_all_but({one.suite.digest for one in (*served, *held)}):
            closing = asyncio.create_task(close(one))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _slots(self, served: Sequence[Served]) -> int:
        suites = [one.suite for one in served]
        if self._group is Group.SCORER:
            return self._given_slots or max((suite.judged_at_once for suite in suites), default=1)
        return self._given_slots or max((suite.concurrency for suite in suites), default=1)

    async def _wait_for_a_slot(self) -> None:
        self._freed.clear()
        if not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY):
                    await self._freed.wait()

    # --- holding -----------------------------------------------------------------------------------------

    def _start(self, lease: Lease) -> None:
        if self._breaker.tries:
            lease.tries = self._runtime.now()
        self._holding[lease.entry.batch, lease.entry.id] = lease
        lease.task = asyncio.create_task(self._drive(lease))

    async def _drive(self, lease: Lease) -> None:
        entry = lease.entry
        try:
            if not _names_a_run(entry):
                await self._bus.dead_letter(entry, self._name, "unreadable")
                return
            while (pause := await self._try(lease)) is not None:
                lease.waiting = True
                self._freed.set()
                await self._runtime.sleep(pause * (0.75 + 0.5 * self._runtime.jitter()))
                lease.waiting = False
        except asyncio.CancelledError:
            if not lease.fenced:
                await self._handler.give_back(lease)
        except Exception as error:
            await self._failed(lease, error)
        else:
            was_driven = self._independent or (lease.ref is not None and not lease.fenced)
            if was_driven and lease.tries is not None:
                await self._breaker.went_well()
        finally:
            self._holding.pop((entry.batch, entry.id), None)
            self._freed.set()

    async def _failed(self, lease: Lease, error: Exception) -> None:
        """One could not be driven to its end: whose doing it is says what becomes of it, and of this process."""
        entry = lease.entry
        if isinstance(error, ArtifactMissing) and await self._is_void(lease):
            self._intake.lost(lease)
            log.warning("lease.lost", batch=entry.batch, run=entry.run, why=str(error))
        elif (fault := fault_of(error)) is not None:
            if (end := spent(error)) is not None:  # as good as dead: counted like any death, it may be this run's doing
                log.error("process.spent", batch=entry.batch, run=entry.run, why=str(error))
                self._failure = self._failure or end
            else:
                await self._hand_back(lease, fault)
        elif isinstance(error, EvalbusError):
            log.error("role.failed", batch=entry.batch, run=entry.run, why=str(error))
            self._failure = self._failure or error
            if not isinstance(error, ServerError):  # it is this process that ends, and no fault of the run's
                await self._give_back(lease)
        else:
            # Not the solver's and not the scorer's doing: those are holes. The entry stays pending, so that another
            # machine may fare better; if none does, it ends as poison.
            log.exception("handler.broke", batch=entry.batch, run=entry.run)
            await self._breaker.begin(error, lease.served.lease)

    async def _hand_back(self, lease: Lease, fault: MachineError) -> None:
        """Let another machine have it, at once and uncounted, and rest: first, or a slot here would take it again."""
        entry = lease.entry
        if fault.recheck is None and self._disks is not None:
            fault.recheck = self._disks.recheck
        log.warning("machine.unfit", batch=entry.batch, run=entry.run, why=str(fault))
        try:
            is_why = await self._breaker.begin(fault, lease.served.lease)
            await _look(fault, lease.served.lease)
        except asyncio.CancelledError:  # a disk that hangs is what machines are stopped for
            if not lease.fenced:
                await self._give_back(lease)
            raise
        if not await self._give_back(lease, fault) and is_why:
            await self._breaker.end()

    async def _give_back(self, lease: Lease, fault: MachineError | None = None) -> bool:
        try:
            return await self._handler.give_back(lease, fault)
        except EvalbusError as error:
            self._failure = self._failure or error
            return True

    async def _is_void(self, lease: Lease) -> bool:
        """Whether the lease is known not to hold any more.

        A server that lost its last moments has forgotten the bytes, what named them, and that the lease was granted.
        That is nobody's mistake here; without the question, each machine that held such a lease would stop for good.
        """
        if lease.ref is None:
            return False
        try:
            [beat] = await self._bus.heartbeat(self._group, self._name, Held([lease.ref], []))
        except EvalbusError:
            return False
        return not beat.applied

    async def _try(self, lease: Lease) -> float | None:
        entry, lease_id = lease.entry, LeaseId(self._runtime.token())
        if self._independent:
            return await self._handler.handle(lease, lease.served, lease_id)
        owner = Owner(entry.batch, entry.run)
        async with self._quarantine.enter(owner, suspect=lease.redelivered) as lease.place:
            return await self._handler.handle(lease, lease.served, lease_id)

    async def _beat_for_ever(self) -> None:
        while True:
            leases = [held.served.lease for held in self._holding.values()]
            await self._runtime.sleep(min(leases, default=3.0) / 3)
            self._make_way()
            try:
                await self._beat()
            except EvalbusError as error:
                self._failure = self._failure or error

    def _make_way(self) -> None:
        """Hand back what only waits, when a suspect does: see the module's text. Once each."""
        for lease in self._holding.values():
            if lease.task is None or lease.place is None or lease.made_way:
                continue
            if self._quarantine.is_in_the_way(lease.place) and lease.only_waits(lease.served.lease):
                lease.made_way = True
                log.info("lease.makes_way", batch=lease.entry.batch, run=lease.entry.run)
                lease.task.cancel()

    def _only_waits(self, lease: Lease) -> bool:
        # Who waits to be driven waits for those who are: without counting it, one that waits for a dead one's place
        # would keep out, for good, the very entry whose claim gives that place back.
        waits_to_be_driven = not self._independent and lease.place is None
        return waits_to_be_driven or lease.only_waits(lease.served.lease)

    async def _beat(self) -> None:
        holding = list(self._holding.values())
        if not holding:
            return
        leased = [lease for lease in holding if lease.ref is not None and not lease.ending]
        refs = [lease.ref for lease in leased if lease.ref is not None]
        waiting = [lease.entry for lease in holding if lease.ref is None]
        decisions = await self._bus.heartbeat(self._group, self._name, Held(refs, waiting))
        for lease, ref, decision in zip(leased, refs, decisions, strict=True):
            if not decision.applied and lease.ref is ref and not lease.ending:
                lease.let_go()
                self._intake.lost(lease, stale=decision.reason == "stale_lease")
                log.warning("lease.fenced", batch=ref.batch, run=ref.run, gen=ref.gen, why=decision.reason)

    async def _let_go(self) -> None:
        tasks = [lease.task for lease in self._holding.values() if lease.task is not None]
        for lease in self._holding.values():
            lease.stop()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _look(fault: MachineError, seconds: float) -> None:
    """See whether the machine's own look finds the fault, or hangs: then it is no run's doing, and noted in it."""
    try:
        await look(fault.recheck, seconds)
    except (MachineError, TimeoutError):
        fault.seen = True


def _names_a_run(entry: Entry) -> bool:
    """Whether an entry is one of ours. Anybody with a connection can add others, and no role may end of them."""
    return bool(entry.run) and sum(len(value.encode()) for value in entry.fields.values()) <= _LONGEST_ENTRY
