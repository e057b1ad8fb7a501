"""Fence 12, accepted: 100 permutations of five mishaps that befall a case, or the budget that it shares.

A case that was completed before it was to expire ends committed, one that expired first ends inconclusive; whichever it
is, the mishaps that follow meet a case that has ended. What the cases must have come to is computed here from what was
sent, and compared with the state after every mishap.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

SEEDS = 100
EPOCH = 2
"""The budget epoch of the batch; windows of the epoch before are still under way."""
ATTEMPTS = ("grep", "ls", "cat", "find")
STRANGER = "curl"
SHARE = 10  # tokens of the window for each attempt, who uses at most so many
_HALF = 0.5
_CASE, _POOR, _NEXT = "case", "poor", "next"
GOOD = "pass"

ENDED, SPENT, HONEST = (
    "P1 nothing joins a case that has ended",
    "P2 a refused result spends nothing",
    "P3 no pass on a case that is aborted, or not whole",
)


def _window(case: str, expected: tuple[str, ...], epoch: int = EPOCH) -> str:
    text = json.dumps([case, sorted(expected), epoch], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(slots=True)
class _Case:
    """What a case must be."""

    state: str
    expected: tuple[str, ...] = ()
    cost: int = 0
    joined: dict[str, int] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.state in ("COMMITTED", "ABORTED")

    @property
    def verdict(self) -> str | None:
        return {"COMMITTED": GOOD, "ABORTED": "inconclusive"}.get(self.state)

    @property
    def spent(self) -> int:
        return sum(self.joined.values())


@dataclass(slots=True)
class _Table:
    """All cases of one budget, as they must be by what was sent."""

    batch: Batch
    remaining: int
    cases: dict[str, _Case] = field(default_factory=dict)
    ended_stay: bool = True
    spends_once: bool = True
    honest: bool = True

    async def admit(self, case: str, expected: tuple[str, ...], cost: int) -> None:
        """Ask for a window."""
        await self.batch.send("admit", case=case, expected=list(expected), window_cost=cost)
        if case not in self.cases and cost > self.remaining:
            self.cases[case] = _Case("ABORTED")
        elif case not in self.cases:
            self.remaining -= cost
            self.cases[case] = _Case("OPEN", expected, cost)

    async def result(self, case: str, attempt: str, tokens: int, *, window: str | None = None, ok: bool = True) -> None:
        """An attempt comes back, from that window or else from the case's own."""
        at = self.cases[case]
        own = _window(case, at.expected)
        window = window or own
        answer = await self.batch.send("result", case=case, attempt=attempt, window=window, tokens=tokens, ok=ok)
        self.ended_stay &= not (at.ended and answer["verb"] == "commit")
        if at.state == "OPEN" and window == own and attempt in set(at.expected) - at.joined.keys():
            at.joined[attempt] = tokens
            at.state = "JOINED" if at.joined.keys() == set(at.expected) else "OPEN"

    async def commit(self, case: str, verdict: str = GOOD) -> None:
        """Somebody takes the case for complete."""
        at = self.cases[case]
        answer = await self.batch.send("commit", case=case, verdict=verdict)
        self.honest &= answer["verb"] != "commit" or at.state == "JOINED"
        if at.state == "JOINED":
            at.state = "COMMITTED"
            self.remaining += at.cost - at.spent

    async def expire(self, case: str) -> None:
        """Its time is over."""
        await self.batch.send("expire", case=case)
        if self.cases[case].state == "OPEN":
            self.cases[case].state = "ABORTED"

    async def look(self) -> None:
        """Compare at this point."""
        state = await self.batch.state()
        self.spends_once &= state["remaining"] == self.remaining and state["cases"].keys() == self.cases.keys()
        for name, at in self.cases.items():
            there: Mapping[str, Any] = state["cases"].get(name, {})
            self.ended_stay &= not at.ended or there.get("joined") == sorted(at.joined)
            self.spends_once &= there.get("joined") == sorted(at.joined) and there.get("spent") == at.spent
            self.honest &= (there.get("state"), there.get("verdict")) == (at.state, at.verdict)


@dataclass(slots=True)
class _Story:
    """One permutation."""

    table: _Table
    rng: Random
    expected: tuple[str, ...]
    tokens: Mapping[str, int]

    async def come(self, attempt: str, *, window: str | None = None) -> None:
        """One attempt of the case comes back, well or not."""
        ok = self.rng.random() < _HALF
        await self.table.result(_CASE, attempt, self.tokens[attempt], window=window, ok=ok)

    def missing(self) -> list[str]:
        """Attempts that have not joined, in an order that the network chose."""
        missing = [attempt for attempt in self.expected if attempt not in self.table.cases[_CASE].joined]
        return self.rng.sample(missing, len(missing))

    async def duplicate_after_close(self) -> None:
        """The case comes to its end; then everything comes again, and somebody thinks otherwise."""
        for attempt in self.missing():
            await self.come(attempt)
        for verdict in (GOOD, GOOD, "fail"):
            await self.table.commit(_CASE, verdict)
        for attempt in self.rng.sample(self.expected, len(self.expected)):
            await self.come(attempt)
        await self.table.admit(_CASE, self.expected, SHARE)

    async def unknown_attempt(self) -> None:
        """Somebody whom nobody asked answers; and the case is taken for complete."""
        await self.table.result(_CASE, STRANGER, self.rng.randint(1, SHARE))
        await self.table.commit(_CASE)

    async def window_mismatch(self) -> None:
        """An attempt of another window comes: of the budget before, of another set, of another case."""
        others = [
            _window(_CASE, self.expected, EPOCH - 1),
            _window(_CASE, (*self.expected, STRANGER)),
            _window(_NEXT, self.expected),
        ]
        for attempt in self.missing() or self.expected:
            await self.come(attempt, window=self.rng.choice(others))
        await self.table.admit(_CASE, (*self.expected, STRANGER), SHARE)

    async def admit_below_cost(self) -> None:
        """A case that the budget has no room for; it can't come back with less."""
        await self.table.admit(_POOR, self.expected, self.table.remaining + self.rng.randint(1, SHARE))
        await self.table.result(_POOR, self.expected[0], 1, window=_window(_POOR, self.expected))
        await self.table.commit(_POOR)
        await self.table.admit(_POOR, self.expected, 0)
        await self.table.expire(_POOR)

    async def expire_with_one_missing(self) -> None:
        """All but one come; the case is taken for complete, its time is over, and then the last one comes."""
        *early, last = self.missing() or self.expected
        for attempt in early:
            await self.come(attempt)
        if self.rng.random() < _HALF:
            await self.table.commit(_CASE)
        await self.table.expire(_CASE)
        await self.come(last)
        await self.table.commit(_CASE)


MISHAPS: tuple[Callable[[_Story], Awaitable[None]], ...] = (
    _Story.duplicate_after_close,
    _Story.unknown_attempt,
    _Story.window_mismatch,
    _Story.admit_below_cost,
    _Story.expire_with_one_missing,
)


async def _play(stage: Stage) -> Mapping[str, Tally]:
    tallies = {held: Tally("permutations") for held in (ENDED, SPENT, HONEST)}

    async def one(seed: int) -> None:
        rng = stage.rng("join", seed)
        expected = tuple(rng.sample(ATTEMPTS, rng.randint(2, len(ATTEMPTS))))
        budget = len(expected) * SHARE + rng.randint(0, SHARE)
        async with stage.batch({"budget": budget, "budget_epoch": EPOCH}) as batch:
            table = _Table(batch, budget)
            story = _Story(table, rng, expected, {attempt: rng.randint(1, SHARE) for attempt in expected})
            await table.admit(_CASE, expected, len(expected) * SHARE)
            for mishap in rng.sample(MISHAPS, len(MISHAPS)):
                await mishap(story)
                await table.look()
            await table.admit(_NEXT, expected, table.remaining)  # what came back can be spent, and no more
            await table.look()
        tallies[ENDED].count(table.ended_stay, f"seed {seed}")
        tallies[SPENT].count(table.spends_once, f"seed {seed}")
        tallies[HONEST].count(table.honest, f"seed {seed}")

    await stage.each(stage.seeds(SEEDS), one)
    return tallies


RULES = (Rule("permutations of five mishaps", _play, {"key_on_case_only": SPENT, "commit_on_first_result": HONEST}),)
