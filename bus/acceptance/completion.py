"""Fence 4, accepted: every order of six mishaps, and 2,000 seeded shards.

A shard is one model call of a run of its own. The mishaps befall the call while its answer is under way, or once it is
bound; afterwards whoever holds the run asks until the shard has come to an end, and an old answer comes after the
close. Of the shards that ended, none may have been bound by an answer that did not count any more, and none twice.
Whether an answer counts is told here by what was granted, opened and answered before it was sent.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

SEEDS = 2_000
TOGETHER = 24  # shards of one batch, interleaved
RETRIES = 2  # of each plane, where every mishap comes once: two preemptions, two corrupt answers
_STEP = "call"
_TRIES = 8  # more than a run's retries
_EXCHANGES = 8  # turns between two answers that come to another shard
_HALF, _QUARTER = 0.5, 0.25


@dataclass(frozen=True, slots=True)
class _Lease:
    lease_id: str
    gen: int


@dataclass(frozen=True, slots=True)
class _Request:
    """A prompt that left, or what an answer says of it."""

    lease: _Lease
    request_id: str
    prompt_hash: str


@dataclass(slots=True)
class _Shard:
    """One model call, what was granted to its run, and what came of it."""

    batch: Batch
    run: str
    compute_left: int
    model_left: int
    live: _Lease | None = None
    leases: int = 0
    asked: int = 0
    requests: list[_Request] = field(default_factory=list)
    """As they were opened; the last one counts."""
    spoilt: set[str] = field(default_factory=set)
    """Requests whose answer was corrupt."""
    exhausted: bool = False
    unheld: bool = False
    """Nobody holds the run, and a lease was refused."""
    closed: bool = False
    told_the_close: bool = False
    bound: Mapping[str, Any] | None = None
    binds: int = 0
    stale_binds: int = 0

    def counts(self, request: _Request) -> bool:
        """Whether its answer may be bound, as long as nothing is."""
        latest = request.lease == self.live and self.requests[-1:] == [request]
        return latest and request.request_id not in self.spoilt and not self.exhausted and not self.closed

    @property
    def spent(self) -> bool:
        """It was refused a retry, and none was left."""
        return (self.exhausted and self.model_left == 0) or (self.unheld and self.compute_left == 0)

    @property
    def ended(self) -> bool:
        """A terminal decision was told."""
        return self.bound is not None or self.told_the_close or self.spent

    async def claim(self) -> None:
        """Another holder."""
        lease_id = f"{self.run} held {self.leases}"
        answer = await self.batch.send("lease", run=self.run, lease_id=lease_id)
        if answer["verb"] == "commit":
            self.compute_left -= self.leases > 0
            self.leases += 1
            self.live = _Lease(lease_id, answer["gen"])
        self.unheld |= self.live is None and answer["reason"] == "retries_exhausted"

    async def preempt(self, rng: Random) -> None:
        """The holder is gone: known to be, or its successor is just there."""
        if self.live is None or rng.random() < _HALF:
            await self.claim()
        elif (await self.batch.send("fence", run=self.run, gen=self.live.gen))["verb"] == "commit":
            self.live = None

    async def open(self) -> None:
        """The live holder asks anew."""
        if self.live is None:
            return
        self.asked += 1
        request = _Request(self.live, f"{self.run} asks {self.asked}", f"prompt {self.asked}")
        answer = await self.batch.send("open", **self._named(request))
        if answer["verb"] == "commit":
            self.requests.append(request)

    async def ask(self) -> _Request | None:
        """The request whose answer is awaited: there already, or opened now. None when the run can't ask any more."""
        if self.live is None:
            await self.claim()
        if self.bound is None and not (self.requests and self.counts(self.requests[-1])):
            await self.open()
        return self.requests[-1] if self.requests else None

    async def bind(self, answer_to: _Request, *, whole: bool = True, digest: str | None = None) -> None:
        """An answer comes, and says what it answers."""
        fair = whole and self.counts(answer_to)
        digest = digest or f"answer to {answer_to.prompt_hash}"
        answer = await self.batch.send("bind", **self._named(answer_to), payload_ok=whole, digest=digest)
        if answer["verb"] == "commit":
            self.binds += 1
            self.stale_binds += not fair
            row = {"request_id": answer_to.request_id, "gen": answer_to.lease.gen, "digest": digest}
            self.bound = self.bound or row
        elif answer["verb"] == "replay" and answer_to.request_id not in self.spoilt:
            self.spoilt.add(answer_to.request_id)
            self.model_left -= 1
        self.exhausted |= answer["reason"] == "retries_exhausted"
        self.told_the_close |= answer["reason"] == "after_close"

    def _named(self, request: _Request) -> dict[str, object]:
        return {
            "run": self.run,
            "step": _STEP,
            "lease_id": request.lease.lease_id,
            "gen": request.lease.gen,
            "request_id": request.request_id,
            "prompt_hash": request.prompt_hash,
        }

    def is_as_bound(self, state: Mapping[str, Any]) -> bool:
        """Bound at most once, and as it was told then."""
        return self.binds <= 1 and state["bound"].get(f"{self.run}/{_STEP}") == self.bound

    def is_charged(self, state: Mapping[str, Any]) -> bool:
        """The run's retries are what it used, once each."""
        at = state["runs"][self.run]
        left = (at["compute_left"], at["model_left"], at["exhausted"])
        return left == (self.compute_left, self.model_left, self.exhausted)


Mishap = Callable[[_Shard, Random], Awaitable[None]]


async def _begin(shard: _Shard, _rng: Random) -> None:
    """The prompt leaves."""
    await shard.ask()


async def _preempted(shard: _Shard, rng: Random) -> None:
    await shard.preempt(rng)


async def _late(shard: _Shard, rng: Random) -> None:
    """The answer to a request that does not count any more, as it was sent, or passed on by the live holder."""
    old = [request for request in shard.requests if not shard.counts(request)]
    if not old:
        return  # the answer that is under way will be late after another mishap
    request = rng.choice(old)
    await shard.bind(request)
    if shard.live is not None:
        await shard.bind(replace(request, lease=shard.live))


async def _delivered_twice(shard: _Shard, rng: Random) -> None:
    if request := await shard.ask():
        await shard.bind(request)
        await shard.bind(request, digest=rng.choice([None, "another answer"]))


async def _fresh_duplicate(shard: _Shard, rng: Random) -> None:
    """The prompt is sent again under another id; the first answer comes under its own, and under one of nobody."""
    if request := await shard.ask():
        await shard.open()
        copies = [replace(request, request_id=f"{shard.run} asks nothing"), request]
        for copy in rng.sample(copies, len(copies)):
            await shard.bind(copy)


async def _corrupt(shard: _Shard, rng: Random) -> None:
    """An answer that can't be read; then the same again, or whole after all: the request is used up."""
    if request := await shard.ask():
        await shard.bind(request, whole=False)
        await shard.bind(request, whole=rng.random() < _HALF)


async def _preempted_in_replay(shard: _Shard, rng: Random) -> None:
    """A corrupt answer is asked for again; meanwhile the holder goes, and the second answer comes to nobody."""
    if request := await shard.ask():
        await shard.bind(request, whole=False)
        again = await shard.ask() or request
        await shard.preempt(rng)
        if again.lease != shard.live:  # else nobody could be found to succeed the holder
            await shard.bind(again)
            if shard.live is not None:
                await shard.bind(replace(again, lease=shard.live))


async def _another_prompt(shard: _Shard, _rng: Random) -> None:
    if request := await shard.ask():
        await shard.bind(replace(request, prompt_hash="another prompt"))


async def _finish(shard: _Shard, _rng: Random) -> None:
    """Ask until there is an end."""
    for _ in range(_TRIES):
        if shard.ended:
            return
        if request := await shard.ask():
            await shard.bind(request)


MISHAPS: Mapping[str, Mishap] = {
    "preempt": _preempted,
    "late": _late,
    "duplicate": _delivered_twice,
    "duplicate under a fresh request id": _fresh_duplicate,
    "corrupt payload": _corrupt,
    "preempt during replay": _preempted_in_replay,
}


@dataclass(frozen=True, slots=True)
class _Plan:
    """What befalls one shard, and how to find it again."""

    story: str
    mishaps: Sequence[Mishap]


@dataclass(frozen=True, slots=True)
class _Told:
    """One shard, afterwards."""

    story: str
    ended: bool
    stale: bool
    bound_once: bool
    charged: bool


@dataclass(frozen=True, slots=True)
class _Properties:
    """What is asked of the shards of one rule."""

    stale: str
    twice: str
    live: str

    @classmethod
    def of(cls, name: str) -> _Properties:
        return cls(f"{name}: no stale bind", f"{name}: no shard bound twice", f"{name}: every shard ends")


async def _together(stage: Stage, plans: Sequence[_Plan], rng: Random, *, retries: int | None) -> list[_Told]:
    """Shards of one batch, their mishaps in turns. `retries` None: drawn, and the close may come early."""
    compute, model = (rng.randint(0, RETRIES), rng.randint(0, RETRIES)) if retries is None else (retries, retries)
    early = rng.randint(1, 3 * len(plans)) if retries is None and rng.random() < _QUARTER else None
    async with stage.batch({"compute_retries": compute, "model_retries": model}) as batch:
        shards = [_Shard(batch, f"run{number}", compute, model) for number in range(len(plans))]
        turns = [(shard, iter([_begin, *plan.mishaps, _finish])) for shard, plan in zip(shards, plans, strict=True)]
        for played in itertools.count():
            if not turns:
                break
            if played == early:
                await _close(batch, shards)
            if played % _EXCHANGES == 0:
                await _exchange_answers(shards, rng)
            shard, mishaps = turn = rng.choice(turns)
            if mishap := next(mishaps, None):
                await mishap(shard, rng)
            else:
                turns.remove(turn)
        ended = [shard.ended for shard in shards]
        await _close(batch, shards)
        for shard in shards:
            if shard.requests:
                await shard.bind(rng.choice(shard.requests))
        state = await batch.state()
    return [
        _Told(plan.story, end, shard.stale_binds > 0, shard.is_as_bound(state), shard.is_charged(state))
        for plan, shard, end in zip(plans, shards, ended, strict=True)
    ]


async def _close(batch: Batch, shards: Sequence[_Shard]) -> None:
    await batch.send("close")
    for shard in shards:
        shard.closed = True


async def _exchange_answers(shards: Sequence[_Shard], rng: Random) -> None:
    """One holder presents what another run asked."""
    one, other = rng.sample(shards, 2)
    if one.live is not None and other.requests:
        await one.bind(replace(other.requests[-1], lease=one.live))


def _rule(name: str, plan: Callable[[Stage], Sequence[_Plan]], *, retries: int | None) -> Rule:
    held = _Properties.of(name)

    async def play(stage: Stage) -> Mapping[str, Tally]:
        stale, twice, live = (Tally("shards that ended"), Tally("shards that ended"), Tally("shards"))
        plans = plan(stage)
        seed = next(stage.seeds(1))

        async def one(first: int) -> None:
            rng = stage.rng(name, seed, first)
            for told in await _together(stage, plans[first : first + TOGETHER], rng, retries=retries):
                live.count(told.ended and told.charged, told.story)
                if told.ended:
                    stale.count(not told.stale, told.story)
                    twice.count(told.bound_once, told.story)

        await stage.each(range(0, len(plans), TOGETHER), one)
        return {held.stale: stale, held.twice: twice, held.live: live}

    mutants = ("bind_on_shard_id", "bind_on_request_id", "live_lease_adopts")
    return Rule(name, play, dict.fromkeys(mutants, held.stale))


def _orders(_stage: Stage) -> list[_Plan]:
    orders = itertools.permutations(MISHAPS)
    return [_Plan(" > ".join(order), [MISHAPS[mishap] for mishap in order]) for order in orders]


def _drawn(stage: Stage) -> list[_Plan]:
    choices = [*MISHAPS.values(), _another_prompt]
    plans = []
    for seed in stage.seeds(SEEDS):
        rng = stage.rng("completion", seed)
        plans.append(_Plan(f"seed {seed}", rng.choices(choices, k=rng.randint(1, 5))))
    return plans


RULES = (
    _rule("every order of six mishaps", _orders, retries=RETRIES),
    _rule("seeded shards", _drawn, retries=None),
)
