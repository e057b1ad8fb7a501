"""A fleet before it is paid for: what N workers get done when machines are taken away at some rate.

The roles' code is not run here, for a thousand workers poll too often for that. This is a model of the queues that they
make: runs wait for a slot, calls for a place at the endpoint, commands for the server's one thread, and a run whose
machine was taken away for its lease to be missed. What it assumes:

    a machine is taken away at a constant rate, at any moment, and replaced after `times.replace`
    its runs are missed a lease time after their last heartbeat, and given to whoever looks next and has a free slot
    a run makes `calls` model calls one after the other; their times are drawn from a lognormal distribution
    with resume = "prefix" a successor goes on behind the last call that was bound, with "fresh" it starts over
    tokens come evenly over a call; those of a call that broke off, and of what is done again, are orphans
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from workers.forecasting.agenda import Agenda, Line
from workers.forecasting.capacity import shard_of_run
from workers.forecasting.costs import Costs
from workers.forecasting.fleet import Estimate, Fleet
from workers.forecasting.tally import Tally

__all__ = ["estimate"]

_LONGEST: Final = 10_000_000
"""Events: a fleet that is taken away faster than it works never ends."""


@dataclass(slots=True, eq=False)
class _Worker:
    line: Line = field(default_factory=Line)
    taken_at: float | None = None
    """Since when it has had no machine."""
    running: set[int] = field(default_factory=set)
    """Runs, by number."""


@dataclass(slots=True, eq=False)
class _Run:
    number: int
    left: int
    """Calls to be made."""
    deliveries: int = 0
    begun: float = 0.0
    """When its present call began; negative while it waits for a place."""
    takes: float = 0.0
    worker: _Worker | None = None
    lease: int = -1
    """Which of all that were handed out: what was to happen under another does not happen any more."""
    lost: float | None = None
    """When its holder was taken away."""
    spent: int = 0
    """By the present attempt, durable so far."""


def estimate(fleet: Fleet, costs: Costs | None = None, seed: int = 0) -> Estimate:
    """Play a batch on the fleet. The same seed gives the same figures."""
    return _Model(fleet, costs or Costs(), seed).played()


class _Model:
    def __init__(self, fleet: Fleet, costs: Costs, seed: int) -> None:
        self._fleet, self._costs = fleet, costs
        self._random = random.Random(seed)  # noqa: S311 - a forecast, no secret
        self._agenda, self._tally = Agenda(), Tally([[] for _ in range(fleet.shards)])
        self._servers = [Line() for _ in range(fleet.shards)]
        self._workers = [_Worker() for _ in range(fleet.workers)]
        self._has_slot = [worker for worker in self._workers for _ in range(fleet.slots)]
        self._runs = [_Run(number, fleet.calls) for number in range(fleet.runs)]
        self._coming = iter(self._runs)
        slots = fleet.workers * fleet.slots
        self._room = fleet.bound or slots + -(-slots // 2)
        self._queue: deque[_Run] = deque()
        self._calls: deque[_Run] = deque()
        self._at_endpoint = 0
        self._leases = itertools.count()

    def played(self) -> Estimate:
        for worker in self._workers:
            self._machine_lives(worker)
        self._admit()
        self._hand_out()
        for _ in range(_LONGEST):
            if self._tally.ended == self._fleet.runs or not self._agenda.step():
                break
        now = self._agenda.now
        self._tally.gone += sum(now - one.taken_at for one in self._workers if one.taken_at is not None)
        server_busy = max(server.busy for server in self._servers) + self._polling(now)
        return self._tally.estimate(self._fleet, now, server_busy)

    # --- time ----------------------------------------------------------------------------------------------

    def _served(self, seconds: float, run: _Run) -> float:
        """When the server of a run has done it: its one thread takes one command after the other."""
        return self._servers[self._shard(run)].done(seconds, self._agenda.now)

    def _shard(self, run: _Run) -> int:
        return shard_of_run(run.number, self._fleet.shards)

    def _polling(self, seconds: float) -> float:
        """What polling and heartbeats take of a server in that time."""
        fleet, costs = self._fleet, self._costs
        beats = costs.times.beats / fleet.lease * costs.server.heartbeat
        looks = (costs.times.scans / fleet.lease + 1 / costs.times.poll) * costs.server.read
        return seconds * fleet.workers * (beats + looks)

    def _under_lease(self, when: float, act: Callable[[_Run, _Worker], None], run: _Run) -> None:
        """Have it happen to the run then, if it has the same holder still."""
        self._agenda.at(when, partial(self._if_held, act, run, run.lease))

    def _if_held(self, act: Callable[[_Run, _Worker], None], run: _Run, lease: int) -> None:
        if run.worker is not None and run.lease == lease:
            act(run, run.worker)

    # --- machines ------------------------------------------------------------------------------------------

    def _machine_lives(self, worker: _Worker) -> None:
        if self._fleet.preempted > 0:
            lives = self._random.expovariate(self._fleet.preempted / 3600)
            self._agenda.at(self._agenda.now + lives, partial(self._taken_away, worker))

    def _taken_away(self, worker: _Worker) -> None:
        self._tally.preemptions += 1
        worker.taken_at = self._agenda.now
        self._has_slot = [one for one in self._has_slot if one is not worker]
        for number in sorted(worker.running):
            self._lose(self._runs[number])
        worker.running.clear()
        self._agenda.at(self._agenda.now + self._costs.times.replace, partial(self._replaced, worker))
        if self._fleet.model_slots is not None:
            self._next_calls()

    def _replaced(self, worker: _Worker) -> None:
        assert worker.taken_at is not None
        self._tally.gone += self._agenda.now - worker.taken_at
        worker.taken_at = None
        self._has_slot += [worker] * self._fleet.slots
        self._machine_lives(worker)
        self._hand_out()

    # --- runs ----------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        while self._room > 0 and (run := next(self._coming, None)) is not None:
            self._queue.append(run)
            self._served(self._costs.server.admit, run)
            self._room -= 1

    def _hand_out(self) -> None:
        tally, costs = self._tally, self._costs
        while self._queue and self._has_slot:
            run, worker = self._queue.popleft(), self._has_slot.pop()
            if run.lost is not None:
                tally.redeliveries += 1
                tally.missed += self._agenda.now - run.lost
                run.lost = None
            run.deliveries += 1
            run.worker, run.lease = worker, next(self._leases)
            worker.running.add(run.number)
            if self._fleet.resume == "fresh":
                tally.orphans += run.spent
                run.spent, run.left = 0, self._fleet.calls
            claimed = self._served(costs.server.read + costs.server.claim, run)
            self._under_lease(worker.line.done(costs.worker.run, claimed), self._ask, run)

    def _lose(self, run: _Run) -> None:
        """Its machine is gone: what the call under way has spent is spent in vain, and the lease has to be missed."""
        now, fleet, times, tally = self._agenda.now, self._fleet, self._costs.times, self._tally
        if run.begun > 0:
            tokens = round(min((now - run.begun) / run.takes, 1.0) * fleet.tokens)
            tally.tokens += tokens
            tally.orphans += tokens
            tally.busy += now - run.begun
            self._at_endpoint -= 1
        elif run.begun < 0:
            tally.waiting += now + run.begun
            self._calls.remove(run)
        run.begun, run.worker, run.lost = 0.0, None, now
        beat = fleet.lease / times.beats * self._random.random()
        look = fleet.lease / times.scans / max(len(self._has_slot) / fleet.slots, 1.0) * self._random.random()
        self._agenda.at(now + fleet.lease - beat + look, partial(self._come_back, run))

    def _come_back(self, run: _Run) -> None:
        if run.deliveries >= self._fleet.max_deliveries:
            self._tally.poison += 1
            self._tally.orphans += run.spent
            self._end(run)
            return
        self._queue.appendleft(run)
        self._hand_out()

    def _ask(self, run: _Run, _worker: _Worker) -> None:
        if not self._fleet.calls:
            self._under_lease(self._served(self._costs.server.seal, run), self._sealed, run)
            return
        self._calls.append(run)
        run.begun = -max(self._agenda.now, 1e-9)
        self._next_calls()

    def _next_calls(self) -> None:
        fleet = self._fleet
        while self._calls and (fleet.model_slots is None or self._at_endpoint < fleet.model_slots):
            run = self._calls.popleft()
            self._tally.waiting += self._agenda.now + run.begun
            self._at_endpoint += 1
            run.begun = self._served(self._costs.server.open_call, run)
            run.takes = fleet.call_time * math.exp(fleet.spread * self._random.gauss(0.0, 1.0))
            self._under_lease(run.begun + run.takes, self._answered, run)

    def _answered(self, run: _Run, worker: _Worker) -> None:
        fleet, server = self._fleet, self._costs.server
        self._tally.busy += self._agenda.now - run.begun
        self._at_endpoint -= 1
        self._tally.tokens += fleet.tokens
        run.spent += fleet.tokens
        run.begun, run.left = 0.0, run.left - 1
        bound = self._served(server.flush + server.bind_call, run)
        done = worker.line.done(self._costs.worker.call, bound)
        if run.left:
            self._under_lease(done, self._ask, run)
        else:
            self._under_lease(max(done, self._served(server.seal, run)), self._sealed, run)
        self._next_calls()

    def _sealed(self, run: _Run, worker: _Worker) -> None:
        worker.running.discard(run.number)
        self._has_slot.append(worker)
        run.worker = None
        scored = self._served(self._costs.server.score_claim + self._costs.server.score, run)
        self._agenda.at(scored, partial(self._end, run))
        self._hand_out()

    def _end(self, run: _Run) -> None:
        self._tally.ends[self._shard(run)].append(self._agenda.now)
        self._room += 1
        self._admit()
        self._hand_out()
