"""Fence 10, accepted: a stream of eight chunks breaks at each of its chunks, and is replayed at once or gated.

The chunk at the cut was paid for and is not stored. Immediate replay: the silent attempt stays open and goes on to its
end beside the new one. Gated: it is closed, what was in the air has landed, and the gateway's figure is settled first.
In both, two workers ask to replay at the same moment, and the budget has room for one of them. The account of what
arrived is kept here, and compared with the ledger's after every operation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

CHUNKS = 8
FEWEST, MOST = 9, 11  # tokens of a chunk
ESTIMATE = CHUNKS * MOST
ORPHAN_RATIO = 0.25
REPLAYS = ("immediate", "gated")
FIRST, TWINS, AFTER = 1, (2, 3), 4
"""Attempts: the one that breaks, the two that ask to replay it, and one that comes when all is over."""
_STEP = "s"
_HALF = 0.5

COUNTED = "S1 spent = durable + orphan, and is what arrived"
ONCE = "S2 one attempt of the step commits, none is admitted after it"
WHOLE = "S3 what commits is whole and stored"
BOUNDED = "S4 the budget has room for what is admitted, of two at once for one"
ORPHANS = "orphan ratio under gated replay is at most 0.25"


@dataclass(slots=True)
class _Attempt:
    """What was sent of one attempt, and how the ledger took it."""

    open: bool
    paid: dict[int, int] = field(default_factory=dict)
    """Chunk → tokens, as it came first."""
    stored: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    settled: int | None = None
    """What the gateway says."""

    @property
    def billed(self) -> int:
        return sum(self.paid.values()) if self.settled is None else self.settled

    @property
    def durable(self) -> int:
        return sum(self.paid[seq] for seq in self.stored)

    @property
    def reserved(self) -> int:
        return max(ESTIMATE - self.billed, 0) if self.open else 0

    def is_whole(self, last_seq: int) -> bool:
        """Every chunk came, and every one that was paid is stored."""
        return set(range(1, last_seq + 1)) <= self.paid.keys() and self.paid.keys() == self.stored


@dataclass(slots=True)
class _Account:
    """The ledger's work, counted again."""

    batch: Batch
    budget: int
    points: Tally
    story: str
    attempts: dict[int, _Attempt] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    admitted_after: bool = False
    broken_commits: int = 0
    overdrawn: bool = False

    async def admit(self, *attempts: int) -> list[int]:
        """Several ask at once, if several are named. Answers those that were admitted."""
        answers = await asyncio.gather(*(self._send("admit", attempt, estimate=ESTIMATE) for attempt in attempts))
        admitted = [attempt for attempt, answer in zip(attempts, answers, strict=True) if answer["verb"] == "commit"]
        for attempt in admitted:
            taken = sum(at.billed + at.reserved for at in self.attempts.values())
            self.overdrawn |= taken + ESTIMATE > self.budget
            self.admitted_after |= bool(self.committed) or attempt in self.attempts
            self.attempts[attempt] = _Attempt(open=True)
        for attempt in attempts:
            self.attempts.setdefault(attempt, _Attempt(open=False))
        await self._look()
        return admitted

    async def chunk(self, attempt: int, seq: int, tokens: int, *, durable: bool) -> None:
        """One more chunk, or one again."""
        at = self.attempts[attempt]
        answer = await self._send("chunk", attempt, seq=seq, tokens=tokens, durable=durable)
        if seq not in at.paid:
            at.paid[seq] = tokens
            if answer["verb"] != "commit":
                at.refused.add(seq)
        if durable and seq not in at.refused and at.settled is None:
            at.stored.add(seq)
        await self._look()

    async def done(self, attempt: int, last_seq: int = CHUNKS) -> None:
        """Somebody holds the stream to have come to its end there."""
        at = self.attempts[attempt]
        answer = await self._send("done", attempt, last_seq=last_seq)
        at.open &= answer["state"] == "open"
        if answer["verb"] == "commit":
            self.committed.append(attempt)
            self.broken_commits += not at.is_whole(last_seq)
        await self._look()

    async def cut(self, attempt: int) -> None:
        """The stream is given up."""
        await self._send("cut", attempt)
        self.attempts[attempt].open = False
        await self._look()

    async def reconcile(self, attempt: int, billed: int) -> None:
        """The gateway says what the attempt cost: it counts once the attempt is closed, and the first time."""
        at = self.attempts[attempt]
        await self._send("reconcile", attempt, gateway_billed=billed)
        if not at.open and at.settled is None:
            at.settled = billed
        await self._look()

    async def _send(self, op: str, attempt: int, **args: object) -> Mapping[str, Any]:
        return await self.batch.send(op, step=_STEP, attempt=attempt, **args)

    async def _look(self) -> None:
        """Compare at this point."""
        state = await self.batch.state()
        spent = sum(at.billed for at in self.attempts.values())
        durable = sum(at.durable for at in self.attempts.values())
        reserved = sum(at.reserved for at in self.attempts.values())
        told = [state[name] for name in ("spent", "durable", "orphan", "reserved")]
        self.points.count(told == [spent, durable, spent - durable, reserved], self.story)


Message = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Stream:
    """The step's chunks: the same tokens in every attempt, as the model gives the same answer."""

    account: _Account
    tokens: Mapping[int, int]
    rng: Random

    async def until(self, cut: int) -> None:
        """The first attempt: each chunk is paid for and then stored, but for the one at the cut."""
        for seq in range(1, cut + 1):
            await self.account.chunk(FIRST, seq, self.tokens[seq], durable=False)
            again = self.tokens[seq] + self.rng.randint(0, 3)  # the first tokens stand
            if seq < cut:
                await self.account.chunk(FIRST, seq, again, durable=True)
            elif self.rng.random() < _HALF:
                await self.account.chunk(FIRST, seq, again, durable=False)

    def messages(self, attempt: int, first: int = 1) -> list[Message]:
        """What an attempt sends from that chunk on, in an order that the network chose.

        Its end overtakes all chunks but one, and comes again when they have come, twice.
        """
        chunks: list[Message] = []
        for seq in range(first, CHUNKS + 1):
            send = partial(self.account.chunk, attempt, seq, self.tokens[seq])
            chunks += [partial(send, durable=True), partial(send, durable=self.rng.random() < _HALF)]
        self.rng.shuffle(chunks)
        done = partial(self.account.done, attempt)
        return [chunks[0], done, *chunks[1:], done, done]

    async def at_once(self, *attempts: list[Message]) -> None:
        """Play the messages of several attempts, interleaved."""
        waiting = [list(reversed(messages)) for messages in attempts]
        while alive := [messages for messages in waiting if messages]:
            await self.rng.choice(alive).pop()()


async def _settle(stream: _Stream, cut: int) -> None:
    """Close the broken attempt before anything is replayed; one more chunk was in the air."""
    account, tokens, rng = stream.account, stream.tokens, stream.rng
    in_the_air = [cut + 1] if cut < CHUNKS else []
    billed = sum(tokens[seq] for seq in range(1, cut + 1)) + sum(tokens[seq] for seq in in_the_air)
    await account.reconcile(FIRST, billed)  # too early: it is still open
    end: list[Message] = [
        partial(account.cut, FIRST),
        partial(account.done, FIRST, cut),
    ]  # given up, and taken for its end
    for step in rng.sample(end, len(end)):
        await step()
    landing: list[Message] = [partial(account.chunk, FIRST, seq, tokens[seq], durable=True) for seq in in_the_air]
    landing.append(partial(account.reconcile, FIRST, billed))
    rng.shuffle(landing)
    for step in landing:
        await step()
    await account.reconcile(FIRST, billed + 1)
    await account.chunk(FIRST, cut, tokens[cut], durable=True)


def _budget(tokens: Mapping[int, int], cut: int, replay: str) -> int:
    """Room for the first attempt and one more, but for two more a token is missing."""
    landed = sum(tokens[seq] for seq in range(1, min(cut + 1, CHUNKS) + 1))
    return (ESTIMATE if replay == "immediate" else landed) + 2 * ESTIMATE - 1


async def _play(stage: Stage) -> Mapping[str, Tally]:
    points = Tally("points")
    tallies = {held: Tally("broken streams") for held in (ONCE, WHOLE, BOUNDED, ORPHANS)}
    seed = next(stage.seeds(1))

    async def one(case: tuple[int, str]) -> None:
        cut, replay = case
        story = f"seed {seed}, cut at {cut}, {replay} replay"
        rng = stage.rng("ledger", seed, cut, replay)
        tokens = {seq: rng.randint(FEWEST, MOST) for seq in range(1, CHUNKS + 1)}
        budget = _budget(tokens, cut, replay)
        async with stage.batch({"budget": budget}) as batch:
            account = _Account(batch, budget, points, story)
            stream = _Stream(account, tokens, rng)
            await account.admit(FIRST)
            await stream.until(cut)
            if replay == "gated":
                await _settle(stream, cut)
            admitted = await account.admit(*TWINS)
            going_on = [stream.messages(FIRST, cut)] if replay == "immediate" else []
            await stream.at_once(*going_on, *(stream.messages(attempt) for attempt in admitted))
            await account.admit(AFTER)
            state = await batch.state()
        tallies[ONCE].count(len(account.committed) == 1 and not account.admitted_after, story)
        tallies[WHOLE].count(account.broken_commits == 0, story)
        tallies[BOUNDED].count(len(admitted) == 1 and not account.overdrawn, story)
        if replay == "gated":
            tallies[ORPHANS].count(state["orphan"] <= ORPHAN_RATIO * state["spent"], story)

    await stage.each([(cut, replay) for cut in range(1, CHUNKS + 1) for replay in REPLAYS], one)
    return {COUNTED: points, **tallies}


RULES = (
    Rule(
        "a stream that breaks, and its replay",
        _play,
        {
            "step_counter": COUNTED,
            "cache_ttl_for_commits": ONCE,
            "two_attempts_commit": ONCE,
            "no_reservation": BOUNDED,
        },
    ),
)
