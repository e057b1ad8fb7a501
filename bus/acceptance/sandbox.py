"""Fence 8, accepted: mutating steps, at least a third of them preempted between their write and their join.

0 are committed under an epoch that is gone or without their bytes on the live disk; and each step that was refused is
tried again under a new epoch, or is compensated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

SEEDS, STEPS = 60, 12
HEARTBEAT_MS = 100
SAFE = "no step is committed with a stale epoch, nor without its bytes"
LIVE = "each refused step is tried again or compensated"
PREEMPTED = 0.5  # of the writes, drawn one by one; at least a third of the steps are preempted, by hand if need be


@dataclass(slots=True)
class _Worker:
    """One workspace and its steps, with the disk that it lives on."""

    batch: Batch
    rng: Random
    epoch: int = 0
    last_index: int = 0
    preempted: int = 0
    stale_commits: list[str] = field(default_factory=list)

    async def revive(self, known_index: int) -> None:
        """Another life, on a disk that has the writes up to there."""
        self.epoch = (await self.batch.send("acquire", workspace="w", known_index=known_index))["epoch"]

    async def write(self, step: str) -> Mapping[str, Any]:
        """The step's bytes."""
        answer = await self.batch.send("write", workspace="w", step=step, epoch=self.epoch, path="f", digest="d")
        self.last_index = max(self.last_index, answer.get("log_index") or 0)
        return answer

    async def join(self, step: str, receipt: str, epoch: int) -> Mapping[str, Any]:
        """The receipt comes back; a commit must be of the live epoch, with its bytes there."""
        held = step in (await self.batch.state())["held"].get("w", [])
        live = epoch == self.epoch
        answer = await self.batch.send("join", workspace="w", step=step, receipt=receipt, epoch=epoch)
        if answer["verb"] == "commit" and not (held and live):
            self.stale_commits.append(step)
        return answer

    async def lose(self) -> None:
        """The machine goes away: told, silent, or replaced without a word."""
        how = self.rng.choice(["preempted", "silent", "replaced"])
        if how == "preempted":
            await self.batch.send("preempt", workspace="w", epoch=self.epoch)
        elif how == "silent":
            await self.batch.advance(HEARTBEAT_MS)
        if how != "replaced":
            self.epoch = -1
        self.preempted += 1

    async def do(self, step: str, *, preempt: bool) -> bool:
        """One step to its end: committed, or compensated."""
        await self.batch.send("plan", step=step, escapes=self.rng.random() < 0.3)  # noqa: PLR2004
        for attempt in range(4):
            written = await self.write(step)
            if written["verb"] == "compensate":
                return True
            epoch, receipt = self.epoch, written["receipt"]
            if attempt == 0 and preempt:
                await self.lose()
                early = self.rng.random() < 0.5  # noqa: PLR2004 - the late receipt comes before the revival, or after
                if early:
                    await self.join(step, receipt, epoch)
                await self.revive(self.last_index - self.rng.randint(0, 1))
                if not early:
                    await self.join(step, receipt, epoch)
                receipt = self.rng.choice([receipt, "a receipt of nobody"])
            answer = await self.join(step, receipt, self.epoch)
            if answer["verb"] in ("commit", "duplicate", "compensate"):
                await self.join(step, receipt, self.epoch)  # delivered twice
                return True
        return False


async def _play(stage: Stage) -> Mapping[str, Tally]:
    safe, live = Tally("steps"), Tally("steps")

    async def one(seed: int) -> None:
        rng = stage.rng("sandbox", seed)
        async with stage.batch({"heartbeat_ms": HEARTBEAT_MS}) as batch:
            worker = _Worker(batch, rng)
            await worker.revive(0)
            for number in range(STEPS):
                step = f"s{number}"
                preempt = rng.random() < PREEMPTED or number - worker.preempted >= 2 * STEPS // 3
                ended = await worker.do(step, preempt=preempt)
                safe.count(step not in worker.stale_commits, f"seed {seed}, {step}")
                live.count(ended, f"seed {seed}, {step}")
            if worker.preempted * 3 < STEPS:
                raise AssertionError(f"seed {seed} preempted only {worker.preempted} of {STEPS} steps")

    await stage.each(stage.seeds(SEEDS), one)
    return {SAFE: safe, LIVE: live}


RULES = (Rule("preempted between write and join", _play, {"commit_on_200": SAFE, "receipt_outlives_its_epoch": SAFE}),)
