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

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from workers.simulating.capacity import shard_of_run
from workers.simulating.costs import Costs
from workers.simulating.fleet import Estimate, Fleet

__all__ = ["estimate"]

_LONGEST: Final = 10_000_000
"""Events: a fleet that is taken away faster than it works never ends."""


@dataclass(slots=True)
class _Run:
    left: int
    """Calls to be made."""
    deliveries: int = 0
    begun: float = 0.0
    """When its present call began; negative while it waits for a place."""
    takes: float = 0.0
    worker: int = -1
    lease: int = -1
    """Which of all that were handed out: what was to happen under another does not happen any more."""
    lost: float = -1.0
    """When its holder was taken away."""
    spent: int = 0
    """By the present attempt, durable so far."""


@dataclass(slots=True)
class _Worker:
    life: int = 0
    up: bool = True
    running: set[int] = field(default_factory=set)


def estimate(fleet: Fleet, costs: Costs | None = None, seed: int = 0) -> Estimate:
    """Play a batch on the fleet. The same seed gives the same figures."""
    return _Model(fleet, costs or Costs(), seed).played()


def _steady(shards: Sequence[Sequence[float]]) -> float:
    """Ends a second between the first and the last quarter; of the shard that is slowest for its share of the runs."""
    return min(_middle_rate(ends) * sum(map(len, shards)) / max(len(ends), 1) for ends in shards)


def _middle_rate(ends: Sequence[float]) -> float:
    first, last = len(ends) // 4, len(ends) - 1 - len(ends) // 4
    return (last - first) / (ends[last] - ends[first]) if last > first and ends[last] > ends[first] else 0.0


class _Model:
    def __init__(self, fleet: Fleet, costs: Costs, seed: int) -> None:
        self._fleet, self._costs = fleet, costs
        self._random = random.Random(seed)  # noqa: S311 - a forecast, no secret
        self._now = 0.0
        self._events: list[tuple[float, int, str, int, int]] = []
        self._count = itertools.count()
        self._runs = [_Run(fleet.calls) for _ in range(fleet.runs)]
        self._workers = [_Worker() for _ in range(fleet.workers)]
        self._queue: deque[int] = deque()
        self._calls: deque[int] = deque()
        self._next = 0
        slots = fleet.workers * fleet.slots
        self._bound = fleet.bound or slots + -(-slots // 2)
        self._open = self._at_endpoint = 0
        self._ended = self._poison = self._preemptions = self._redeliveries = 0
        self._tokens = self._orphans = 0
        self._server_free, self._server_busy = [0.0] * fleet.shards, [0.0] * fleet.shards
        self._worker_free = [0.0] * fleet.workers
        self._ends: list[list[float]] = [[] for _ in range(fleet.shards)]
        self._busy = self._waiting = self._gone = self._missed = 0.0
        self._has_slot = [number for number in range(fleet.workers) for _ in range(fleet.slots)]

    def played(self) -> Estimate:
        fleet = self._fleet
        for number in range(fleet.workers):
            self._machine_lives(number)
        self._admit()
        self._hand_out()
        for _ in range(_LONGEST):
            if self._ended == fleet.runs or not self._events:
                break
            self._now, _, what, one, life = heapq.heappop(self._events)
            getattr(self, f"_{what}")(one, life)
        self._poll_costs()
        whole = max(self._now * fleet.workers * fleet.slots, 1e-9)
        still = sum(self._gone_since(worker) for worker in self._workers)
        gone = (self._gone + still) * fleet.slots / whole
        busy, waiting = self._busy / whole, self._waiting / whole
        return Estimate(
            fleet=fleet,
            seconds=self._now,
            scored=self._ended - self._poison,
            poison=self._poison,
            busy=busy,
            waiting=waiting,
            idle=max(1.0 - busy - waiting - gone, 0.0),
            gone=gone,
            steady=_steady(self._ends),
            server=min(max(self._server_busy) / max(self._now, 1e-9), 1.0),
            preemptions=self._preemptions,
            redeliveries=self._redeliveries,
            missed=self._missed / self._redeliveries if self._redeliveries else 0.0,
            tokens=self._tokens,
            orphans=self._orphans,
        )

    # --- time ----------------------------------------------------------------------------------------------

    def _at(self, when: float, what: str, one: int, life: int = 0) -> None:
        heapq.heappush(self._events, (when, next(self._count), what, one, life))

    def _served(self, seconds: float, one: int) -> float:
        """When the server of a run has done it: its one thread takes one command after the other."""
        shard = shard_of_run(one, self._fleet.shards)
        self._server_free[shard] = max(self._now, self._server_free[shard]) + seconds
        self._server_busy[shard] += seconds
        return self._server_free[shard]

    def _worked(self, number: int, seconds: float, since: float) -> float:
        """When a worker has done it: likewise."""
        self._worker_free[number] = max(since, self._worker_free[number]) + seconds
        return self._worker_free[number]

    def _poll_costs(self) -> None:
        """What polling and heartbeats took of the server, over the whole time."""
        fleet, costs = self._fleet, self._costs
        beats = costs.times.beats / fleet.lease * costs.server.heartbeat
        looks = (costs.times.scans / fleet.lease + 1 / costs.times.poll) * costs.server.read
        polled = self._now * fleet.workers * (beats + looks)
        self._server_busy = [busy + polled for busy in self._server_busy]

    # --- machines ------------------------------------------------------------------------------------------

    def _machine_lives(self, number: int) -> None:
        if self._fleet.preempted > 0:
            lives = self._random.expovariate(self._fleet.preempted / 3600)
            self._at(self._now + lives, "taken_away", number, self._workers[number].life)

    def _taken_away(self, number: int, life: int) -> None:
        worker, fleet = self._workers[number], self._fleet
        if worker.life != life:
            return
        self._preemptions += 1
        worker.up, worker.life = False, worker.life + 1
        self._has_slot = [one for one in self._has_slot if one != number]
        self._gone -= self._now
        for one in sorted(worker.running):
            self._lose(one)
        worker.running.clear()
        self._at(self._now + self._costs.times.replace, "replaced", number)
        if fleet.model_slots is not None:
            self._next_calls()

    def _replaced(self, number: int, _life: int) -> None:
        self._workers[number].up = True
        self._gone += self._now
        self._has_slot += [number] * self._fleet.slots
        self._machine_lives(number)
        self._hand_out()

    def _gone_since(self, worker: _Worker) -> float:
        """Of a machine that is not back yet: the time was begun to be counted when it went."""
        return 0.0 if worker.up else self._now

    # --- runs ----------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        while self._next < self._fleet.runs and self._open < self._bound:
            self._queue.append(self._next)
            self._served(self._costs.server.admit, self._next)
            self._next += 1
            self._open += 1

    def _hand_out(self) -> None:
        while self._queue and self._has_slot:
            one, number = self._queue.popleft(), self._has_slot.pop()
            run, worker = self._runs[one], self._workers[number]
            if run.lost >= 0:
                self._redeliveries += 1
                self._missed += self._now - run.lost
                run.lost = -1.0
            run.deliveries += 1
            run.worker, run.lease = number, next(self._count)
            worker.running.add(one)
            if self._fleet.resume == "fresh":
                self._orphans += run.spent
                run.spent, run.left = 0, self._fleet.calls
            claimed = self._served(self._costs.server.read + self._costs.server.claim, one)
            self._at(self._worked(number, self._costs.worker.run, claimed), "ask", one, run.lease)

    def _lose(self, one: int) -> None:
        """Its machine is gone: what the call under way has spent is spent in vain, and the lease has to be missed."""
        run, fleet, times = self._runs[one], self._fleet, self._costs.times
        if run.begun > 0:
            share = min((self._now - run.begun) / run.takes, 1.0)
            self._tokens += round(share * fleet.tokens)
            self._orphans += round(share * fleet.tokens)
            self._busy += self._now - run.begun
            self._at_endpoint -= 1
        elif run.begun < 0:
            self._waiting += self._now + run.begun
            self._calls.remove(one)
        run.begun, run.worker, run.lost = 0.0, -1, self._now
        beat = fleet.lease / times.beats * self._random.random()
        look = fleet.lease / times.scans / max(len(self._has_slot) / fleet.slots, 1.0) * self._random.random()
        self._at(self._now + fleet.lease - beat + look, "come_back", one)

    def _come_back(self, one: int, _life: int) -> None:
        run = self._runs[one]
        if run.deliveries >= self._fleet.max_deliveries:
            self._poison += 1
            self._orphans += run.spent
            self._end(one)
            return
        self._queue.appendleft(one)
        self._hand_out()

    def _is_stale(self, one: int, lease: int) -> bool:
        run = self._runs[one]
        return run.worker < 0 or run.lease != lease

    def _ask(self, one: int, lease: int) -> None:
        if self._is_stale(one, lease):
            return
        if not self._fleet.calls:
            self._at(self._served(self._costs.server.seal, one), "sealed", one, lease)
            return
        self._calls.append(one)
        self._runs[one].begun = -max(self._now, 1e-9)
        self._next_calls()

    def _next_calls(self) -> None:
        fleet = self._fleet
        while self._calls and (fleet.model_slots is None or self._at_endpoint < fleet.model_slots):
            one = self._calls.popleft()
            run = self._runs[one]
            self._waiting += self._now + run.begun
            self._at_endpoint += 1
            begin = self._served(self._costs.server.open_call, one)
            run.begun = begin
            run.takes = fleet.call_time * math.exp(fleet.spread * self._random.gauss(0.0, 1.0))
            self._at(begin + run.takes, "answered", one, run.lease)

    def _answered(self, one: int, lease: int) -> None:
        if self._is_stale(one, lease):
            return
        run, fleet, server = self._runs[one], self._fleet, self._costs.server
        self._busy += self._now - run.begun
        self._at_endpoint -= 1
        self._tokens += fleet.tokens
        run.spent += fleet.tokens
        run.begun, run.left = 0.0, run.left - 1
        bound = self._served(server.flush + server.bind_call, one)
        done = self._worked(run.worker, self._costs.worker.call, bound)
        if run.left:
            self._at(done, "ask", one, lease)
        else:
            self._at(max(done, self._served(server.seal, one)), "sealed", one, lease)
        self._next_calls()

    def _sealed(self, one: int, lease: int) -> None:
        if self._is_stale(one, lease):
            return
        run = self._runs[one]
        self._workers[run.worker].running.discard(one)
        self._has_slot.append(run.worker)
        run.worker = -1
        self._at(self._served(self._costs.server.score_claim + self._costs.server.score, one), "scored", one)
        self._hand_out()

    def _scored(self, one: int, _life: int) -> None:
        self._end(one)

    def _end(self, one: int) -> None:
        self._ended += 1
        self._ends[shard_of_run(one, self._fleet.shards)].append(self._now)
        self._open -= 1
        self._admit()
        self._hand_out()
