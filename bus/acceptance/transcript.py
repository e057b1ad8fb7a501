"""Fence 7, accepted: 0 mixed transcripts in 1,000 injected schedules of each kind.

The kinds: a preemption after the call, a late envelope after the bump, two holders of one generation, a forged prefix
under a live pair. Each is a run of a few events that changes hands where the seed says, with the injected message among
them; at the end the chain must hold exactly what its live holders appended, in order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

SCHEDULES = 1_000
EMPTY = "0" * 64


def _head(parent: str, payload: str) -> str:
    return hashlib.sha256((parent + payload).encode()).hexdigest()


@dataclass(slots=True)
class _Story:
    """One run, told by whoever holds it: what must be in it, and what was sent that must not."""

    batch: Batch
    run: str
    events: list[str] = field(default_factory=list)
    head: str = EMPTY
    refused: bool = True
    """Every injected message was refused."""

    async def take(self, lease_id: str) -> dict[str, Any]:
        """Another holder."""
        answer = await self.batch.send("lease", run=self.run, lease_id=lease_id)
        return {"run": self.run, "lease_id": lease_id, "gen": answer["gen"]}

    async def tell(self, holder: Mapping[str, Any], payload: str) -> None:
        """The live holder goes on."""
        answer = await self._append(holder, self.head, len(self.events) + 1, payload)
        if answer["verb"] == "commit":
            self.events.append(payload)
            self.head = answer["head"]

    async def inject(self, holder: Mapping[str, Any], payload: str, *, parent: str | None = None) -> None:
        """Somebody says what must not be taken."""
        answer = await self._append(holder, self.head if parent is None else parent, len(self.events) + 1, payload)
        self.refused &= answer["verb"] == "reject"

    async def _append(self, holder: Mapping[str, Any], parent: str, seq: int, payload: str) -> Mapping[str, Any]:
        return await self.batch.send("append", **holder, parent=parent, seq=seq, payload=payload)

    async def is_whole(self) -> bool:
        """The transcript is what was told, and only that."""
        state = (await self.batch.state())["transcripts"][self.run]
        return self.refused and state["events"] == self.events and state["head"] == self.head


async def _preempted_after_the_call(story: _Story, rng: Random) -> None:
    """The call's intention stands; its holder is preempted; the successor resolves it, and then the answer comes."""
    first = await story.take("first")
    for number in range(rng.randint(0, 3)):
        await story.tell(first, f"event {number}")
    call = {"parent": story.head, "seq": len(story.events) + 1}
    await story.batch.send("intend", **first, **call, digest="call")
    if rng.random() < 0.5:  # noqa: PLR2004 - a timeout, or the next claim alone
        await story.batch.send("fence", run=story.run, gen=first["gen"])
    second = await story.take("second")
    late = {**first, **call, "payload": "late answer", "intent": "call"}
    before, after = (await story.batch.send("append", **late), None) if rng.random() < 0.5 else (None, late)  # noqa: PLR2004
    answer = await story.batch.send("append", **second, **call, payload="lost", intent="call")
    if answer["verb"] == "commit":
        story.events.append("lost")
        story.head = answer["head"]
    if after is not None:
        before = await story.batch.send("append", **after)
    story.refused &= before is not None and before["verb"] == "reject"
    await story.tell(second, "went on")


async def _late_envelope(story: _Story, rng: Random) -> None:
    """The old holder's event arrives after the bump, with the prefix as it stands or as it knew it."""
    first = await story.take("first")
    await story.tell(first, "plan")
    known = story.head
    second = await story.take("second")
    steps = ["late"] + ["tell"] * rng.randint(1, 3)
    rng.shuffle(steps)
    for number, step in enumerate(steps):
        if step == "tell":
            await story.tell(second, f"event {number}")
        else:
            await story.inject(first, "late event", parent=rng.choice([known, story.head]))


async def _two_holders(story: _Story, rng: Random) -> None:
    """A failover repeated the number: the pair that was not granted has the generation right and the lease wrong."""
    first = await story.take("first")
    for number in range(rng.randint(1, 3)):
        await story.tell(first, f"event {number}")
    await story.inject({**first, "lease_id": "twin"}, "the twin's event")
    await story.tell(first, "went on")


async def _forged_prefix(story: _Story, rng: Random) -> None:
    """The live holder quotes the prefix of another world."""
    first = await story.take("first")
    for number in range(rng.randint(1, 4)):
        await story.tell(first, f"event {number}")
    forged = rng.choice([EMPTY, _head(story.head, "never committed"), _head(EMPTY, "another run's plan")])
    await story.inject(first, "forged", parent=forged)
    await story.tell(first, "went on")


Injection = Callable[[_Story, Random], Awaitable[None]]


def _rule(name: str, inject: Injection, mutant: str) -> Rule:
    held = f"{name}: no mixed transcript"

    async def play(stage: Stage) -> Mapping[str, Tally]:
        tally = Tally("schedules")

        async def one(seed: int) -> None:
            async with stage.batch({}) as batch:
                story = _Story(batch, f"run {seed}")
                await inject(story, stage.rng(name, seed))
                tally.count(await story.is_whole(), f"seed {seed}")

        await stage.each(stage.seeds(SCHEDULES), one)
        return {held: tally}

    return Rule(name, play, {mutant: held})


RULES = (
    _rule("preempted after the call", _preempted_after_the_call, "append_by_liveness"),
    _rule("late envelope after the bump", _late_envelope, "append_by_liveness"),
    _rule("two holders of one generation", _two_holders, "append_by_liveness"),
    _rule("forged prefix under a live pair", _forged_prefix, "gen_only"),
)
