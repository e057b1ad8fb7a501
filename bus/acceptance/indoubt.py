"""Fence 3, accepted: calls that are decided after their client has seen a timeout.

Five kinds of schedule, 100 seeds each: timeout, then late success; lease recycled, then late body; lost admit answer;
impostor's bind; recover, then late bind. The effects are applied in a world that does not know the fence: each licence
to start is one effect, which lands when it likes, and an undo takes one back and keeps later ones of its key away. At
the end a call that was decided COMMIT has one applied effect and every other has none, whoever was told what, and when.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

SEEDS = 100
PATIENCE_MS, TTL_MS = 50, 100  # the client sees a timeout while the lease is live
COMMIT, REJECT = "COMMIT", "REJECT"

APPLIED, DECIDED = "applied effects: 1 on commit, else 0", "no call stays in doubt"


@dataclass(slots=True)
class _World:
    """What the calls share: the batch and its time."""

    batch: Batch
    rng: Random
    now_ms: int = 0

    async def wait(self, ms: int) -> None:
        """Time passes."""
        self.now_ms += ms
        await self.batch.advance(ms)

    def maybe(self) -> bool:
        """Toss a coin."""
        return self.rng.random() < 0.5  # noqa: PLR2004


@dataclass(slots=True)
class _Call:
    """One pair: its client, its workers, and its effects outside."""

    world: _World
    run: str
    key: str = "k"
    epoch: int = 1
    lease_id: str = "none yet"
    asked_ms: int | None = None
    """When its client asked for it first."""
    on_the_way: int = 0
    applied: int = 0
    undone: bool = False
    decided_ms: int | None = None
    told: set[str] = field(default_factory=set)
    """What anybody was told that it came to."""

    async def reserve(self, slot: str = "gpu") -> Mapping[str, Any]:
        """The client asks for a place."""
        if self.asked_ms is None:
            self.asked_ms = self.world.now_ms
        answer = await self._send("reserve", slot=slot, ttl_ms=TTL_MS)
        if answer["verb"] in ("commit", "duplicate"):
            self.lease_id = answer["lease_id"]
        return answer

    async def start(self) -> None:
        """A worker that holds the job: the effect starts on `commit` only."""
        answer = await self._send("prepare", lease_id=self.lease_id)
        self.on_the_way += answer["verb"] == "commit"

    def land(self) -> None:
        """Whatever has started arrives, unless its undo was there before it."""
        self.applied += 0 if self.undone else self.on_the_way
        self.on_the_way = 0

    async def bind(self, *, lease_id: str | None = None, result: str = "done") -> None:
        """A result comes back."""
        answer = await self._send("bind", lease_id=lease_id or self.lease_id, result=result)
        if answer["verb"] == "commit":
            self._decided(COMMIT if result == "done" else f"COMMIT of {result}")

    async def recover(self) -> None:
        """Somebody asks what became of it, and undoes what has to be undone."""
        answer = await self._send("recover")
        if answer["verb"] == "commit":
            self._decided(COMMIT if answer["result"] == "done" else f"COMMIT of {answer['result']}")
        elif answer["verb"] == "compensate":
            self.applied -= not self.undone and self.applied > 0
            self.undone = True
            self._decided(REJECT)
        elif answer["reason"] == "never_started":
            self._decided(REJECT)

    async def deliver(self) -> None:
        """The job, to one more worker: it starts if it may, and comes back with what it has."""
        await self.start()
        self.land()
        await self.bind()

    async def ask_again(self) -> None:
        """What a client does after its timeout: ask for the same call, and recover it when told so."""
        answer = await self.reserve()
        if answer["verb"] in ("commit", "duplicate"):
            await self.deliver()
        elif answer["verb"] == "in_doubt":
            await self.recover()

    async def settle(self) -> str:
        """Whoever is left recovers it; then what it came to."""
        self.land()
        await self.world.wait(TTL_MS)
        await self.recover()
        outcomes = (await self.world.batch.state())["outcomes"]
        return str(outcomes.get(f"{self.run}/{self.key}@{self.epoch}"))

    @property
    def is_late(self) -> bool:
        """Its client had seen a timeout when it was decided, or it never was."""
        if self.decided_ms is None or self.asked_ms is None:
            return True
        return self.decided_ms - self.asked_ms >= PATIENCE_MS

    def is_as_told(self, outcome: str) -> bool:
        """One answer for everybody, and the effects that it promises."""
        return self.told == {outcome} and self.applied == (1 if outcome == COMMIT else 0)

    def _decided(self, outcome: str) -> None:
        self.told.add(outcome)
        if self.decided_ms is None:
            self.decided_ms = self.world.now_ms

    async def _send(self, op: str, **more: object) -> Mapping[str, Any]:
        return await self.world.batch.send(op, run=self.run, key=self.key, epoch=self.epoch, **more)


async def _timeout_then_late_success(call: _Call, world: _World) -> None:
    """The client gives up waiting and asks again; the first worker's success comes, in time for its lease or not."""
    await call.reserve()
    await call.start()
    first = call.lease_id
    await world.wait(world.rng.randint(PATIENCE_MS, TTL_MS + PATIENCE_MS))
    if world.maybe():
        call.land()
    if world.maybe():
        await call.ask_again()
        await world.wait(world.rng.choice([0, TTL_MS // 2, TTL_MS]))
    call.land()
    await call.bind(lease_id=first)
    await call.ask_again()


async def _recycled_then_late_body(call: _Call, world: _World) -> None:
    """The slot goes to somebody else, or the conversation goes on without it, and then the first one's body comes."""
    await call.reserve()
    if world.maybe():
        await call.start()
    await world.wait(TTL_MS)
    if world.maybe():
        await world.batch.send("turn", run=call.run, epoch=call.epoch + 1)
    other = _Call(world, world.rng.choice([call.run, "another run"]), key="another", epoch=call.epoch + 1)
    await other.reserve()
    await other.start()
    for late in world.rng.sample([call.bind, call.start, other.bind], 3):
        await late()
    await call.bind(lease_id=other.lease_id)
    other.land()
    outcome = await other.settle()
    if not other.is_as_told(outcome) or outcome != COMMIT:
        call.told.add(f"another run's {outcome}")


async def _lost_admit_answer(call: _Call, world: _World) -> None:
    """The answer to the reservation is lost, its job is not: after the timeout there may be two deliveries of it."""
    await call.reserve()
    first = call.lease_id
    if world.maybe():
        await call.start()
    await world.wait(world.rng.choice([PATIENCE_MS, TTL_MS]))
    await call.reserve()
    for _ in range(2):
        await call.start()
    if world.maybe():
        await call.bind(lease_id=first)
    call.land()
    await call.bind()


async def _impostor_binds(call: _Call, world: _World) -> None:
    """Someone else has a result for the call, under a lease that is not its: before the true one, or after it."""
    if world.maybe():
        await call.reserve()
        await world.wait(TTL_MS)
    impostor = world.rng.choice([call.lease_id, "another's"])
    await call.reserve()
    if impostor == call.lease_id:
        impostor = "nobody's"
    await call.start()
    await world.wait(PATIENCE_MS)
    call.land()
    binds: list[Callable[[], Awaitable[None]]] = [lambda: call.bind(lease_id=impostor, result="forged")]
    if world.maybe():
        binds.append(call.bind)
    world.rng.shuffle(binds)
    for bind in binds:
        await bind()


async def _recover_then_late_bind(call: _Call, world: _World) -> None:
    """The call is given up, whether it had started or not; then its worker wakes up, and a second delivery comes."""
    await call.reserve()
    if world.maybe():
        await call.start()
    if world.maybe():
        call.land()
    await world.wait(TTL_MS)
    await call.recover()
    for late in world.rng.sample([call.deliver, call.bind, call.ask_again, call.recover], 4):
        await late()


Schedule = Callable[[_Call, _World], Awaitable[None]]
SCHEDULES: Mapping[str, Schedule] = {
    "timeout, then late success": _timeout_then_late_success,
    "lease recycled, then late body": _recycled_then_late_body,
    "lost admit answer": _lost_admit_answer,
    "impostor's bind": _impostor_binds,
    "recover, then late bind": _recover_then_late_bind,
}


async def _play(stage: Stage) -> Mapping[str, Tally]:
    tallies = {held: Tally("calls decided after a timeout") for held in (APPLIED, DECIDED)}
    cases = [(kind, seed) for kind in SCHEDULES for seed in stage.seeds(SEEDS)]

    async def one(case: tuple[str, int]) -> None:
        kind, seed = case
        async with stage.batch({}) as batch:
            world = _World(batch, stage.rng("indoubt", kind, seed))
            call = _Call(world, "n3")
            await SCHEDULES[kind](call, world)
            outcome = await call.settle()
        if call.is_late:
            tallies[APPLIED].count(call.is_as_told(outcome), f"{kind}, seed {seed}")
            tallies[DECIDED].count(outcome in (COMMIT, REJECT), f"{kind}, seed {seed}")

    await stage.each(cases, one)
    return tallies


RULES = (
    Rule(
        "decided after a timeout",
        _play,
        {
            "blind_replay": APPLIED,
            "impostor_decides": APPLIED,
            "recover_without_tombstone": APPLIED,
            "second_prepare_starts": APPLIED,
        },
    ),
)
