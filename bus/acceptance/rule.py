"""What a rule is, and the stage that it plays on.

    async def play(stage: Stage) -> Mapping[str, Tally]:
        bounded = Tally("schedules")
        for seed in stage.seeds(1_000):
            async with stage.batch({"bound": 1, "reclaim_ms": 100}) as batch:
                answer = await batch.send("acquire", step="s1")
                …
            bounded.count(held, f"seed {seed}: …")
        return {"P1 in flight stays within the bound": bounded}

The stage hands out batches of one fence, each empty and with a clock of its own: on a server, or on a model. Rules
draw from `random.Random(seed)` only, so that a violation can be played again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bus.vectors import Player

__all__ = ["Batch", "Rule", "Stage", "Tally"]

T = TypeVar("T")

_TOLD = 20  # violations that are kept in words; the others are counted


@dataclass(slots=True)
class Tally:
    """How many were examined, of what, and which of them broke the property."""

    unit: str
    examined: int = 0
    broken: int = 0
    violations: list[str] = field(default_factory=list)

    def count(self, held: bool, story: str) -> None:
        """One more; `story` says how to find it again when it did not hold."""
        self.examined += 1
        if not held:
            self.broken += 1
            if len(self.violations) < _TOLD:
                self.violations.append(story)


@dataclass(slots=True)
class Batch:
    """One empty batch of the fence, and what was answered so far."""

    player: Player

    async def send(self, op: str, **args: object) -> Mapping[str, Any]:
        """One operation; its answer with `verb`, `reason` and fields."""
        return await self.player.apply(op, args)

    async def advance(self, ms: int) -> None:
        """Move the batch's clock."""
        await self.player.advance(ms)

    async def state(self) -> Mapping[str, Any]:
        """The state dump of the contract."""
        return await self.player.dump()


class Stage:
    """Where a rule plays. `make` gives a new player each time; `seed` is the first of the run's seeds."""

    def __init__(self, protocol: str, make: Callable[[], Player], *, seed: int, tick: Callable[[int], None]) -> None:
        """`tick` hears how many schedules were played since it was last called."""
        self._protocol, self._make, self._seed, self._tick = protocol, make, seed, tick
        self._idle: list[Player] = []

    def seeds(self, count: int) -> Iterator[int]:
        """So many seeds, the same for each run with the same first one."""
        yield from range(self._seed, self._seed + count)

    @staticmethod
    def rng(*parts: object) -> random.Random:
        """Randomness that belongs to these parts: a rule's name, a seed."""
        return random.Random("/".join(map(str, parts)))  # noqa: S311 - to be repeated, not to be secret

    @contextlib.asynccontextmanager
    async def batch(self, config: Mapping[str, object]) -> AsyncIterator[Batch]:
        """An empty batch, gone afterwards."""
        player = self._idle.pop() if self._idle else self._make()
        try:
            await player.begin(self._protocol, config)
            yield Batch(player)
        finally:
            await player.end()
            self._idle.append(player)
            self._tick(1)

    async def each(self, items: Iterable[T], play: Callable[[T], Awaitable[None]], *, at_once: int = 16) -> None:
        """Play many schedules, some at a time: they are batches apart, and share nothing but the server."""
        waiting = iter(items)

        async def one_after_another() -> None:
            for item in waiting:
                await play(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(one_after_another())


@dataclass(frozen=True, slots=True)
class Rule:
    """Schedules of one kind, and the properties that they are asked for."""

    name: str
    play: Callable[[Stage], Awaitable[Mapping[str, Tally]]]
    """Answers a tally for each property."""
    breaks: Mapping[str, str]
    """Mutant → the property of this rule that it must break."""
