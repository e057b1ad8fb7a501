"""Fence 11, accepted: seeds 1 to 200 of timeout, then late completion.

Each seed is a desk with one to three places and as many steps as it likes, each with a service time drawn at random:
those that take longer than the timeout are expired and sent again, and their bodies come all the same. Afterwards no
step was committed twice, every place is back, and every step is committed: a desk that never commits would be safe, and
useless.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

SEEDS = 200
TIMEOUT_MS, RECLAIM_MS = 50, 100
_TRIES = 6  # a step's last try is always quick: the endpoint is slow, not dead


@dataclass(order=True, slots=True)
class _Event:
    at_ms: int
    number: int
    what: str = field(compare=False)
    step: str = field(compare=False)
    lease: dict[str, Any] = field(compare=False)


@dataclass(slots=True)
class _Desk:
    """One seed's world: requests that leave, bodies that come when they come, a clock that fires."""

    batch: Batch
    rng: Random
    bound: int
    waiting: list[str]
    now_ms: int = 0
    events: list[_Event] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)
    late_accepted: int = 0
    most_in_flight: int = 0

    async def run(self) -> None:
        """To the end of all events, then sweep once more."""
        await self._send_what_fits()
        while self.events:
            event = heapq.heappop(self.events)
            await self.batch.advance(event.at_ms - self.now_ms)
            self.now_ms = event.at_ms
            await getattr(self, f"_{event.what}")(event)
            await self._send_what_fits()

    async def _send_what_fits(self) -> None:
        for step in list(self.waiting):
            answer = await self.batch.send("acquire", step=step)
            if answer["verb"] == "commit":
                self.waiting.remove(step)
                self._left(step, {"lease": answer["lease"], "gen": answer["gen"]})
            elif answer["reason"] == "step_committed":
                self.waiting.remove(step)
        self.most_in_flight = max(self.most_in_flight, (await self.batch.state())["in_flight"])

    def _left(self, step: str, lease: dict[str, Any]) -> None:
        tries = self.tries[step] = self.tries.get(step, 0) + 1
        slow = tries < _TRIES and self.rng.random() < 0.6  # noqa: PLR2004
        takes = self.rng.randint(TIMEOUT_MS + 1, 6 * TIMEOUT_MS) if slow else self.rng.randint(1, TIMEOUT_MS - 1)
        self._at(takes, "body", step, lease)
        if slow and self.rng.random() < 0.2:  # noqa: PLR2004 - and some bodies never come
            self.events.pop()
            heapq.heapify(self.events)
        self._at(TIMEOUT_MS, "timeout", step, lease)

    def _at(self, in_ms: int, what: str, step: str, lease: dict[str, Any]) -> None:
        number = sum(self.tries.values()) * 10 + len(self.events)
        heapq.heappush(self.events, _Event(self.now_ms + in_ms, number, what, step, lease))

    async def _body(self, event: _Event) -> None:
        live = event.step in (await self.batch.state())["live"]
        answer = await self.batch.send("apply", **event.lease, digest=f"body of {event.lease['lease']}")
        if answer["verb"] == "commit":
            self.accepted[event.step] = self.accepted.get(event.step, 0) + 1
            self.late_accepted += not live
        await self.batch.send("release", lease=event.lease["lease"])

    async def _timeout(self, event: _Event) -> None:
        answer = await self.batch.send("expire", lease=event.lease["lease"])
        if answer["verb"] == "commit":
            self.waiting.append(event.step)
            self._at(RECLAIM_MS, "sweep", event.step, event.lease)

    async def _sweep(self, event: _Event) -> None:
        await self.batch.send("reclaim", lease=event.lease["lease"], cancelled=False)


BOUNDED, ONCE, LIVE = (
    "P1 in flight stays within the bound",
    "P2 P3 one commit a step, by a live lease",
    "L no place leaks, every step commits",
)


async def _play(stage: Stage) -> Mapping[str, Tally]:
    tallies = {held: Tally("seeds") for held in (BOUNDED, ONCE, LIVE)}

    async def one(seed: int) -> None:
        rng = stage.rng("admission", seed)
        bound = rng.randint(1, 3)
        async with stage.batch({"bound": bound, "reclaim_ms": RECLAIM_MS}) as batch:
            desk = _Desk(batch, rng, bound, [f"s{number}" for number in range(rng.randint(2, 5))])
            await desk.run()
            state = await batch.state()
        once = desk.late_accepted == 0 and all(count == 1 for count in desk.accepted.values())
        committed = state["committed"].keys() == desk.tries.keys() and not desk.waiting
        tallies[BOUNDED].count(desk.most_in_flight <= bound, f"seed {seed}")
        tallies[ONCE].count(once, f"seed {seed}")
        tallies[LIVE].count(state["in_flight"] == 0 and committed, f"seed {seed}")

    await stage.each(stage.seeds(SEEDS), one)
    return tallies


RULES = (
    Rule(
        "timeout, then late completion",
        _play,
        {"retry_bypasses_bound": BOUNDED, "apply_without_live_check": ONCE, "no_reclaim": LIVE},
    ),
)
