"""The planner: admits runs within the bound, finds what got lost, closes.

It holds no state. Each time it wakes up, by a result or after a second without one, it reads the batch's counters and
does what they ask for; any number of planners may do so at once, since each of their commands names the state that it
was decided on. One that dies leaves nothing behind but wake-ups, and any other takes those.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

import structlog

from bus.errors import EvalbusError
from bus.port import BatchStatus, Bus, Counters, Entry, Group, RunState, Runtime
from bus.snapshot import Snapshot
from bus.types import BatchId, ConsumerId, EntryId, Verb
from workers.catalogue import Catalogue, Served

__all__ = ["Planner"]

log = structlog.get_logger("evalbus.planner")

_WAKE_UP = 1.0  # seconds without a result after which a planner looks by itself
_AT_ONCE = 1_000  # wake-ups read, rows looked at: in pieces of this size
_WAITING = {
    Group.WORKER: {RunState.QUEUED, RunState.RUNNING},
    Group.SCORER: {RunState.SEALED, RunState.SCORING},
}


@dataclass(slots=True)
class _Watch:
    """What a planner remembers of a batch between two wake-ups; losing it costs time, nothing else."""

    seen: Counters | None = None
    since: float = 0.0
    swept: float = 0.0


class Planner:
    """See the module's text."""

    def __init__(self, bus: Bus, runtime: Runtime, name: ConsumerId, catalogue: Catalogue) -> None:
        """`name`: under which wake-ups are read."""
        self._bus, self._runtime, self._name, self._catalogue = bus, runtime, name, catalogue
        self._stopping = asyncio.Event()
        self._watches: dict[BatchId, _Watch] = {}
        self._seen_connections = -1

    def stop(self) -> None:
        """Stop after the present step; nothing has to be handed back."""
        self._stopping.set()

    async def run(self) -> None:
        """Plan until stopped, or until the one batch that was asked for has ended. Raises EvalbusError."""
        while not self._stopping.is_set():
            served = await self._catalogue.open_batches()
            if not served:
                if await self._catalogue.ended():
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), _WAKE_UP)
                continue
            woken = await self._wake_ups([one.batch for one in served])
            for one in served:
                await self.tend(one, [entry for entry in woken if entry.batch == one.batch])

    async def _wake_ups(self, batches: list[BatchId]) -> list[Entry]:
        if self._bus.connections != self._seen_connections:
            own = await self._bus.own_pending(Group.PLANNER, self._name, batches, _AT_ONCE)
            self._seen_connections = self._bus.connections
            if own:
                return own
        # What a planner that died had read is nobody's to wait for: its wake-ups are taken with the next look.
        if taken := await self._bus.take_idle(Group.PLANNER, self._name, batches, _AT_ONCE, 10_000):
            return taken
        first = not self._watches
        block_ms = 1 if first else int(_WAKE_UP * 1000)
        return await self._bus.read(Group.PLANNER, self._name, batches, _AT_ONCE, block_ms)

    async def tend(self, served: Served, woken: list[Entry]) -> None:
        """Do for one batch what its counters ask for."""
        batch = served.batch
        watch = self._watches.setdefault(batch, _Watch())
        counters = await self._bus.counters(batch)
        counters = await self._admit(served, counters, woken)
        if counters.status is BatchStatus.DRAINED and counters.scored + counters.holes == counters.intended:
            await self._close(served, counters)
            return
        await self._rebind(served, counters)
        await self._look_for_the_lost(served, counters, watch)
        if self._runtime.now() - watch.swept >= served.lease:
            watch.swept = self._runtime.now()
            await self._bus.sweep(batch, 50)

    async def _admit(self, served: Served, counters: Counters, woken: list[Entry]) -> Counters:
        batch, runs = served.batch, served.runs
        # In pieces, as the scripts' work is bounded; the first takes the wake-ups off.
        while True:
            room = served.info.spec.bound - counters.in_flight
            ahead = runs[counters.cursor : counters.cursor + min(max(room, 0), 100)]
            if counters.status.ended or (not ahead and not woken):
                return counters
            decision = await self._bus.admit(
                batch, counters.cursor, ahead, woken[:100], self._name, served.candidate, served.judge
            )
            if not decision.applied and decision.reason != "bound_full":
                log.warning("admit.refused", batch=batch, decision=str(decision))
                return await self._bus.counters(batch)
            if decision.verb is Verb.COMMIT:
                woken = woken[100:]
            if admitted := int(decision.answer.get("admitted", 0)):
                log.info("runs.admitted", batch=batch, count=admitted, cursor=decision.answer["cursor"])
            counters = await self._bus.counters(batch)

    async def _rebind(self, served: Served, counters: Counters) -> None:
        """Under the policy `replay` a mismatched score is asked for anew, bound to the judge that the suite names."""
        if not counters.review or served.info.spec.judge_policy != "replay":
            return
        parked = await self._bus.parked(served.batch)
        for row in await self._bus.rows(served.batch, parked):
            decision = await self._bus.rebind(served.batch, row.run, row.judge_epoch, served.candidate, served.judge)
            log.info("score.rebound", batch=served.batch, run=row.run, decision=str(decision))

    async def _look_for_the_lost(self, served: Served, counters: Counters, watch: _Watch) -> None:
        """Emit anew what a group no longer knows: only when nothing has moved for two lease times."""
        if counters != watch.seen:
            watch.seen, watch.since = counters, self._runtime.now()
            return
        if self._runtime.now() - watch.since < 2 * served.lease:
            return
        watch.since = self._runtime.now()
        for group, states in _WAITING.items():
            if await self._bus.undelivered(served.batch, group):
                continue
            parked = set(await self._bus.parked(served.batch))
            runs = await self._bus.run_ids(served.batch)
            for start in range(0, len(runs), _AT_ONCE):
                for row in await self._bus.rows(served.batch, runs[start : start + _AT_ONCE]):
                    if row.state in states and row.run not in parked:
                        decision = await self._bus.requeue(served.batch, group, row.run, EntryId(row.entry))
                        log.warning("run.requeued", batch=served.batch, run=row.run, decision=str(decision))

    async def _close(self, served: Served, counters: Counters) -> None:
        """All runs have ended, so no row can change any more: read them in pieces, and close over what they say."""
        rows = await self._bus.rows(served.batch, await self._bus.run_ids(served.batch))
        snapshot = Snapshot.from_rows(rows, served.info.spec)
        try:
            decision = await self._bus.close(served.batch, snapshot.snapshot_id, snapshot.accepted)
        except EvalbusError as error:
            log.error("close.failed", batch=served.batch, why=str(error))
            raise
        log.info("batch.closed", batch=served.batch, snapshot=snapshot.snapshot_id, decision=str(decision))
