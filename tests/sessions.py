"""Sessions drawn at random: a batch as it is declared, and its steps, of those that fit by their weights.

Two kinds of batches are played: plain ones, as a suite without models and tools declares them, and whole ones, in which
all twelve fences stand in the path.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace

from bus.port import BatchSpec, Group, RunState
from bus.port_calls import JUDGE_DESK, MODEL_DESK
from bus.types import BatchId, Digest, Plane
from tests.session_tools import INVERSES, ToolSession

__all__ = ["CALLS_AND_TOOLS", "LIFE", "STEPS", "Session", "plain_spec", "whole_spec"]

STEPS, AFTER_CLOSE = {"plain": 60, "whole": 200}, 16


class Session(ToolSession):
    """One batch, played."""

    async def play(self, steps: int, weights: Mapping[str, float], *, led: bool) -> None:
        """Draw and make the steps: mostly such as have something to work on, seldom any. A closed batch has a few.

        `led`: one holder at a time is looked at, and what fits it is drawn; for it takes many steps that fit to come
        where something can go wrong.
        """
        self.asked, self.fan_outs, self.executions = [], [], []
        self.exact = 0.97 if led else 0.9
        await self.command("create", "", lambda side: side.bus.create(self.spec))
        await self.step("the clock is set", lambda side: side.set_clock(self.clock_ms))
        left = steps
        while left:
            left = min(left - 1, AFTER_CLOSE if self.counters.status.ended else left)
            unfit = 0.2 if self.counters.status.ended else 0.03 if led else 0.05
            live = self.live() if led else []
            self.focus = self.rng.choice(live) if live else None
            fits = self.fits_focus if led else self.fits
            fitting = {name: weight * (1 if fits(name) else unfit) for name, weight in weights.items()}
            (name,) = self.rng.choices(list(fitting), list(fitting.values()))
            await getattr(self, name)()
        await self.twins.both(lambda _: asyncio.sleep(0))

    def fits(self, name: str) -> bool:
        """Whether a step of this name has something to work on."""
        states = {row.state for row in self.rows.values()}
        counters = self.counters
        match name:
            case "admit" | "abandon":
                return counters.cursor < counters.intended and counters.in_flight < self.spec.bound
            case "read":
                return any(len(self.stream(group)) > len(self.pending(group)) for group in Group)
            case "rebind":
                return bool(self.twins.seen["parked"]) or RunState.SCORING in states
            case "close":
                return counters.scored + counters.holes == counters.intended
        if name in OF_AN_ENTRY:
            return bool(self.pending(OF_AN_ENTRY[name]))
        if name in OF_A_HOLDER:
            return RunState.RUNNING in states
        if name in OF_A_SCORER:
            return RunState.SCORING in states
        return bool(states)

    def fits_focus(self, name: str) -> bool:
        """Likewise, for the holder whose turn it is."""
        match name:
            case "claim":
                waiting = {self.messages[one].run for one in self.pending(Group.WORKER)}
                return self.often(0.04) or any(self.row(run).state is RunState.QUEUED for run in waiting)
            case "bind_judge":
                return any(
                    one.call.desk == JUDGE_DESK and not one.ended and self.is_judging(one.ref) for one in self.asked
                )
            case "tool_sent":
                return bool(self.fitting("executing"))
            case "tool_complete":
                return bool(self.fitting("awaiting_ack"))
        if name not in OF_A_HOLDER or self.focus is None:
            return self.fits(name) and name not in OF_A_HOLDER
        at, run = self.twins.memory.world.batches[self.batch], self.focus.run
        life, chain = at.lives[run], at.chain(run)
        under_way = any(at.desks[MODEL_DESK].live.get(call.step) == one for one, call in life.calls.items())
        if at.completion.runs[run].exhausted and self.often(0.9):
            return name in ("hole", "give_back")
        if name in ("bind_call", "flush", "drop_call"):
            return under_way
        if life.turning:
            return name == "turn"
        seq = chain.length + 1
        if seq not in chain.intentions:
            return name not in ("resolve", "join")
        if seq in life.intended:  # a call's: it is lost, or asked again
            return not under_way and name in ("resolve", "open_call", "turn", "give_back")
        step = f"{at.chain_name(run)}.{seq}"
        ended = all(at.outbox.intents[one.id].state not in UNFINISHED for one in life.fan_outs[step].intents)
        return name == "join" if ended else name in ("give_back", "turn")


UNFINISHED = ("queued", "executing", "awaiting_ack", "compensating")
OF_A_HOLDER = (
    "append",
    "seal",
    "give_back",
    "hole",
    "open_call",
    "put_tools",
    "write",
    "resolve",
    "turn",
    "join",
    "bind_call",
    "flush",
    "drop_call",
)
OF_A_SCORER = ("score", "score_give_back", "score_hole", "open_judge")
OF_AN_ENTRY = {"claim": Group.WORKER, "score_claim": Group.SCORER, "tool_claim": Group.TOOLS}

LIFE = {
    "create": 0.6, "admit": 7, "abandon": 0.6, "requeue": 1.2, "rebind": 3, "sweep": 0.3, "close": 6,
    "read": 12, "claim": 9, "append": 5, "seal": 9, "give_back": 1.5, "hole": 0.6, "heartbeat": 1.5,
    "score_claim": 10, "score": 12, "score_give_back": 3, "score_hole": 1,
    "again": 5, "dead_letter": 0.7, "forge": 1.2, "lose_group": 0.6, "expire": 0.2,
}  # fmt: skip

CALLS_AND_TOOLS = {
    "open_call": 9, "flush": 5, "bind_call": 12, "drop_call": 2.5, "resolve": 9, "open_judge": 7, "bind_judge": 16,
    "score": 7, "sweep_calls": 1.5, "tick": 2.5, "write": 5, "put_tools": 7, "tool_claim": 14, "tool_sent": 14,
    "tool_complete": 13, "join": 16, "turn": 1.5, "tool_requeue": 0.5, "forge_tool": 0.5, "seal": 4, "hole": 0.2,
    "again": 4, "read": 16, "give_back": 1, "admit": 5, "requeue": 0.8, "create": 0.1, "abandon": 0.3, "close": 3,
}  # fmt: skip


def plain_spec(seed: int, rng: random.Random) -> BatchSpec:
    """A small batch whose limits are met."""
    runs = rng.randint(1, 5)
    return BatchSpec(
        batch=BatchId(f"b{seed}"),
        suite="suite",
        suite_digest=Digest("d" * 64),
        suite_path="/suite",
        intended=runs,
        quorum=rng.randint(1, runs),
        bins=("pass", "fail"),
        bound=2,
        max_in_flight=rng.randint(1, 2),
        max_deliveries=rng.randint(2, 3),
        lease_ms=1_000,
        judge_policy=rng.choice(["reject", "replay", "review"]),
        replay_budget=1,
        reclaim_ms=1_000,
    )


def whole_spec(seed: int, rng: random.Random, plane: Plane) -> BatchSpec:
    """One in which every fence has something to refuse."""
    plain = plain_spec(seed, rng)
    limits: dict[str, int | str] = {
        "ack_bound_ms": rng.choice([2_000, 2_000, 6_000]),
        "inverses": INVERSES,
        "compute_retries": rng.choice([1, 4, 8]),
        "model_retries": rng.randint(0, 2),
        "heartbeat_ms": rng.choice([4_000, 60_000]),
        "schemas": '["bin/1"]',
        "budget": rng.choice([200, 1_000, 100_000]),
        "budget_epoch": 1,
        "model_slots": rng.randint(1, 2),
        "judge_slots": 1,
    }
    return replace(
        plain, intended=min(plain.intended, 3), quorum=1, max_deliveries=rng.choice([2, 5, 5]), limits=limits
    )
