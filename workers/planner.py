"""The planner: admits runs within the bound and the budget, finds what got lost, closes.

It holds no state. Each time it wakes up, by a result or after a second without one, it reads the batch's counters and
does what they ask for; any number of planners may do so at once, since each of their commands names the state that it
was decided on. One that dies leaves nothing behind but wake-ups, and any other takes those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from bus.at_once import all_of
from bus.errors import EvalbusError, InputError
from bus.keys import RUNS_DESK
from bus.port import BatchSpec, BatchStatus, Bus, Counters, Entry, Group, IntentState, NextRuns, Ref, RunState, Runtime
from bus.port_calls import JUDGE_DESK, MODEL_DESK
from bus.snapshot import Snapshot
from bus.types import BatchId, ConsumerId, Decision, EntryId, Gen, LeaseId, RunId, Verb
from workers.catalogue import Catalogue, Served
from workers.endpoints import open_client
from workers.modelling.billing import figure_of
from workers.suite import Suite
from workers.waiting import Opened, unless

__all__ = ["Planner"]

log = structlog.get_logger("evalbus.planner")

_WAKE_UP = 1.0  # seconds without a result after which a planner looks by itself
_TOGETHER = 0.02  # seconds at most for which wake-ups may come together before they are read
_AT_ONCE = 1_000  # wake-ups read, rows looked at: in pieces of this size
_ADMITTED_AT_ONCE = 100  # runs in one command
_SWEPT_AT_ONCE = 50  # places that one command gives back
_FULL = ("bound_full", "capacity", "over_budget")  # no place at the desk, on the plane, in the budget
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
    tended: float = 0.0
    parked: dict[tuple[RunId, int], float] = field(default_factory=dict)
    """Since when a run's score waits for somebody, by the run and the binding that it waits under."""


def _by_batch(woken: Sequence[Entry]) -> dict[BatchId, list[Entry]]:
    found: dict[BatchId, list[Entry]] = {}
    for entry in woken:
        found.setdefault(entry.batch, []).append(entry)
    return found


def _desks(spec: BatchSpec) -> list[str]:
    """The desks that a batch has."""
    slots = {MODEL_DESK: "model_slots", JUDGE_DESK: "judge_slots"}
    return [RUNS_DESK, *(desk for desk, limit in slots.items() if limit in spec.limits)]


def _billing_url(suite: Suite, desk: str) -> str | None:
    """Where the endpoint of a desk tells what a request cost; None where it does not."""
    asked = {MODEL_DESK: suite.model, JUDGE_DESK: suite.scorer.model if suite.scorer.kind == "model" else None}
    table = asked.get(desk)
    return None if table is None else table.billing_url


def _cost_of_a_run(counters: Counters) -> int:
    """Tokens that one run more will cost: what those that have begun have cost so far, on average."""
    begun = counters.running + counters.sealed + counters.scoring + counters.scored + counters.holes
    return counters.spent // begun if begun else 0


def _is_affordable(spec: BatchSpec, counters: Counters) -> bool:
    """Whether the budget has room for one run more. The server has the last word."""
    budget = spec.limits.get("budget")
    if budget is None:
        return True
    return counters.spent + counters.reserved + _cost_of_a_run(counters) <= int(budget)


class Planner:
    """See the module's text."""

    def __init__(
        self, bus: Bus, runtime: Runtime, name: ConsumerId, catalogue: Catalogue, opened: Opened | None = None
    ) -> None:
        """`name`: under which wake-ups are read. `opened`: as for a consumer."""
        self._bus, self._runtime, self._name, self._catalogue = bus, runtime, name, catalogue
        self._opened = opened
        self._stopping = asyncio.Event()
        self._watches: dict[BatchId, _Watch] = {}
        self._confirming: set[asyncio.Task[None]] = set()
        """Closes that are applied, and not yet known to last: a second of the disk's, in which others' runs end."""
        self._seen_connections = -1
        self._next_idle_scan = float("-inf")
        self.held_up: Callable[[BatchId], bool] = lambda _: False
        """Whether more runs of a batch should wait for something beside it, such as the archive of its history."""

    def stop(self) -> None:
        """Stop after the present step; nothing has to be handed back."""
        self._stopping.set()

    async def run(self) -> None:
        """Plan until stopped, or until the one batch that was asked for has ended. Raises EvalbusError."""
        try:
            await self._plan()
            while self._confirming and not self._stopping.is_set():
                await asyncio.gather(*self._confirming)
                self._confirming.clear()
                await self._plan()  # what its server has lost is to be closed again
            await asyncio.gather(*self._confirming)
        finally:
            for confirming in self._confirming:
                confirming.cancel()

    async def _plan(self) -> None:
        served: list[Served] = []
        looked = float("-inf")
        while not self._stopping.is_set():
            for confirmed in [one for one in self._confirming if one.done()]:
                self._confirming.remove(confirmed)
                confirmed.result()
            if self._runtime.now() - looked >= _WAKE_UP:
                looked = self._runtime.now()
                served = await self._catalogue.open_batches()
                for gone in self._watches.keys() - {one.batch for one in served}:
                    del self._watches[gone]
                if not served and await self._catalogue.ended():
                    return
            if not served:
                await unless(self._stopping, (self._opened or asyncio.sleep)(_WAKE_UP))
                looked = float("-inf")
                continue
            woken = await self._wake_ups([one.batch for one in served])
            of_each = _by_batch(woken)
            due = [one for one in served if one.batch in of_each or self._is_due(one.batch)] if woken else served
            tended = await all_of([self.tend(one, of_each.get(one.batch, [])) for one in due])
            pause = _TOGETHER if woken else 0.0
            for one, counters in zip(due, tended, strict=True):
                pauses = self._pause(one.batch, counters, len(of_each.get(one.batch, [])))
                pause = min(pause, pauses) if one.batch in of_each else pause
                if counters.scored + counters.holes == counters.intended:  # it has ended, or will before long
                    looked = float("-inf")
            if pause:
                await self._runtime.sleep(pause)

    def _is_due(self, batch: BatchId) -> bool:
        """Whether it is to be looked at without a wake-up of its own: others' would have all batches read each time."""
        watch = self._watches.get(batch)
        return watch is None or self._runtime.now() - watch.tended >= _WAKE_UP

    def _pause(self, batch: BatchId, counters: Counters, ended: int) -> float:
        """Seconds for which nobody misses a planner: half of what those that wait for a worker or a scorer will last.

        Meanwhile more runs end, and are one step then: one for each would be most of what a planner does.
        """
        watch, now = self._watches[batch], self._runtime.now()
        since, watch.tended = now - watch.tended, now
        # Not those that wait for a person: they keep no scorer busy.
        waiting = counters.in_flight - counters.running - counters.scoring - counters.review
        return min(_TOGETHER, since * waiting / (2 * ended)) if ended and waiting > 0 else 0.0

    async def _wake_ups(self, batches: list[BatchId]) -> list[Entry]:
        if self._bus.connections != self._seen_connections:
            own = await self._bus.own_pending(Group.PLANNER, self._name, batches, _AT_ONCE)
            self._seen_connections = self._bus.connections
            if own:
                return own
        # What a planner that died had read is nobody's to wait for: its wake-ups are taken with the next look.
        if self._runtime.now() >= self._next_idle_scan:
            self._next_idle_scan = self._runtime.now() + _WAKE_UP
            if taken := await self._bus.take_idle(Group.PLANNER, self._name, batches, _AT_ONCE, 10_000):
                return taken
        is_new = any(batch not in self._watches for batch in batches)  # it waits for its first runs
        block_ms = 1 if is_new else int(_WAKE_UP * 1000)
        return await self._bus.read(Group.PLANNER, self._name, batches, _AT_ONCE, block_ms)

    async def tend(self, served: Served, woken: list[Entry]) -> Counters:
        """Do for one batch what its counters ask for. Returns them."""
        batch = served.batch
        watch = self._watches.setdefault(batch, _Watch())
        counters = await self._bus.counters(batch)
        counters = await self._admit(served, counters, woken)
        counters = await self._abandon(served, counters)
        ended = counters.status is BatchStatus.DRAINED and counters.scored + counters.holes == counters.intended
        if ended and not counters.effects_open:
            if counters.reserved:  # by requests of holders that are gone: nobody else will say what they cost
                await self._sweep(served)
            await self._close(served, counters)
            return counters
        await self._rebind(served, counters)
        await self._end_reviews(served, counters, watch)
        await self._look_for_the_lost(served, counters, watch)
        if self._runtime.now() - watch.swept >= served.lease:
            watch.swept = self._runtime.now()
            await self._sweep(served)
        return counters

    async def _sweep(self, served: Served) -> None:
        """Give back the places of those who are gone, and settle their requests: by the endpoint where it can tell."""
        for desk in _desks(served.info.spec):
            freed = _SWEPT_AT_ONCE
            while freed == _SWEPT_AT_ONCE:
                told = await self._asked(served, desk)
                asked = None if told is None else list(told)
                figures = {lease: figure for lease, figure in (told or {}).items() if figure is not None}
                decision = await self._bus.sweep(served.batch, _SWEPT_AT_ONCE, desk, figures, asked)
                freed = int(decision.answer.get("freed", 0))

    async def _asked(self, served: Served, desk: str) -> dict[str, int | None] | None:
        """What the endpoint of a desk says that its abandoned requests cost, by their places; None: nobody to ask."""
        url = _billing_url(served.suite, desk)
        if url is None:
            return None
        calls = await self._bus.expired_calls(served.batch, desk)
        if not calls:
            return {}
        async with open_client() as client:
            asked = calls[:_SWEPT_AT_ONCE]
            told = await asyncio.gather(*(figure_of(client, url, call.request_id) for call in asked))
        return {call.desk_lease: figure for call, figure in zip(asked, told, strict=True)}

    async def _admit(self, served: Served, counters: Counters, woken: list[Entry]) -> Counters:
        batch, runs, full = served.batch, served.runs, False
        # In pieces, as the scripts' work is bounded; the first takes the wake-ups off.
        while True:
            room = served.info.spec.bound - counters.in_flight
            if full or self.held_up(batch) or not _is_affordable(served.info.spec, counters):
                room = 0
            ahead = runs[counters.cursor : counters.cursor + min(max(room, 0), _ADMITTED_AT_ONCE)]
            if counters.status.ended or (not ahead and not woken):
                return counters
            decision = await self._let_in(served, counters, ahead, woken[:_ADMITTED_AT_ONCE])
            if not decision.applied and decision.reason not in _FULL:
                log.warning("admit.refused", batch=batch, decision=str(decision))
                return await self._bus.counters(batch)
            # Asked again at the next wake-up; the wake-ups at hand are still to be taken off.
            full = (decision.reason or decision.answer.get("why_stopped")) in _FULL
            if decision.verb is Verb.COMMIT:
                woken = woken[_ADMITTED_AT_ONCE:]
            if admitted := int(decision.answer.get("admitted", 0)):
                log.info("runs.admitted", batch=batch, count=admitted, cursor=decision.answer["cursor"])
            counters = await self._bus.counters(batch)

    async def _let_in(
        self, served: Served, counters: Counters, runs: Sequence[RunId], woken: Sequence[Entry]
    ) -> Decision:
        """The next runs: to be worked on, or as another batch has sealed them."""
        batch, source = served.batch, BatchId(served.info.spec.source)
        next_runs = NextRuns(
            counters.cursor, runs, woken, self._name, served.candidate, served.judge, _cost_of_a_run(counters)
        )
        if source:
            return await self._bus.adopt(batch, source, next_runs)
        return await self._bus.admit(batch, next_runs)

    async def _abandon(self, served: Served, counters: Counters) -> Counters:
        """The budget is gone, and nobody is left who could give some of it back: what was never admitted will not be.

        While a run or a call goes on, its reservation may turn out to have been too large: then more may be admitted.
        """
        batch, runs = served.batch, served.runs
        while counters.status is BatchStatus.OPEN and counters.in_flight == 0 and counters.reserved == 0:
            if _is_affordable(served.info.spec, counters):
                break
            never = runs[counters.cursor : counters.cursor + _ADMITTED_AT_ONCE]
            decision = await self._bus.abandon(batch, counters.cursor, never, "over_budget")
            if not decision.applied:
                log.warning("abandon.refused", batch=batch, decision=str(decision))
                break
            log.info("runs.abandoned", batch=batch, count=len(never), why="over_budget")
            counters = await self._bus.counters(batch)
        return counters

    async def _rebind(self, served: Served, counters: Counters) -> None:
        """Under the policy `replay` a mismatched score is asked for anew, bound to the judge that the suite names."""
        if not counters.review or served.info.spec.judge_policy != "replay":
            return
        parked = await self._bus.parked(served.batch)
        for row in await self._bus.rows(served.batch, parked):
            decision = await self._bus.rebind(served.batch, row.run, row.judge_epoch, served.candidate, served.judge)
            log.info("score.rebound", batch=served.batch, run=row.run, decision=str(decision))

    async def _end_reviews(self, served: Served, counters: Counters, watch: _Watch) -> None:
        """Under the policy `review` a parked score waits for somebody, but not for ever: then its run is a hole.

        The time is this planner's; one that takes its place gives each score the whole of it again.
        """
        if not counters.review or served.info.spec.judge_policy != "review":
            watch.parked.clear()
            return
        now, limit = self._runtime.now(), served.suite.judging.review
        rows = await self._bus.rows(served.batch, await self._bus.parked(served.batch))
        watch.parked = {(row.run, row.judge_epoch): watch.parked.get((row.run, row.judge_epoch), now) for row in rows}
        for row in rows:
            if now - watch.parked[row.run, row.judge_epoch] >= limit:
                ref = Ref(served.batch, row.run, LeaseId(""), Gen(row.epoch))
                decision = await self._bus.score_hole(ref, "unreviewed", f"nobody ended its review within {limit:g} s")
                log.warning("review.ended", batch=served.batch, run=row.run, decision=str(decision))

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
        if counters.effects_open and not await self._bus.undelivered(served.batch, Group.TOOLS):
            await self._look_for_lost_tools(served.batch)

    async def _look_for_lost_tools(self, batch: BatchId) -> None:
        """A call of a tool that nobody will be given, or an undo: its run waits for it, and so does the close."""
        for run in await self._bus.run_ids(batch):
            for effect in await self._bus.effects(batch, run):
                if not effect.state.final and effect.state is not IntentState.COMPENSATING:
                    decision = await self._bus.tool_requeue(batch, run, effect.id)
                    log.warning("tool.requeued", batch=batch, run=run, intent=effect.id, decision=str(decision))

    async def _close(self, served: Served, counters: Counters) -> None:
        """All runs have ended, so no row can change any more: read them in pieces, and close over what they say."""
        ends = await self._bus.ends(served.batch, await self._bus.run_ids(served.batch))
        if any(not end.state.ended for end in ends):
            # A server that lost its last moments after the counters were read: there is no end to close over yet.
            log.warning("close.too_early", batch=served.batch)
            return
        snapshot = Snapshot.from_rows(ends, served.info.spec)
        name = snapshot.snapshot_id  # made of every row
        try:
            decision = await self._bus.close(served.batch, name, snapshot.accepted)
        except EvalbusError as error:
            log.error("close.failed", batch=served.batch, why=str(error))
            raise
        self._confirming.add(asyncio.create_task(self._tell(served.batch, name, decision)))

    async def _tell(self, batch: BatchId, snapshot: str, decision: Decision) -> None:
        if decision.applied:
            await self._bus.confirm(batch)
            # By another life of the server, maybe, or by another primary: neither need have heard of it.
            if not await self._has_ended(batch):
                log.warning("close.lost", batch=batch, snapshot=snapshot)
                return
        log.info("batch.closed", batch=batch, snapshot=snapshot, decision=str(decision))

    async def _has_ended(self, batch: BatchId) -> bool:
        try:
            info = await self._bus.info(batch)
        except InputError:  # and was pruned since
            return True
        return info is not None and info.status.ended
