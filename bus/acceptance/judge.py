"""Fence 6, accepted: no row under a wrong token.

The schedules: rebalance before the score, double score, rebind and then the old token, another candidate echoed, lost
answer and retry, missing echo; each under every policy, each with the others' messages mixed in as the seed says.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

SCHEDULES = ("rebalanced", "scored twice", "old token", "other candidate", "lost answer", "missing echo")
SEEDS = 50
HELD = "no row under a wrong token"
POLICIES = ("reject", "replay", "review")

Signature = Mapping[str, object]


def _sign(candidate: str = "ca", judge: str = "ja", epoch: int = 1, digest: str = "d1") -> Signature:
    return {
        "run": "run",
        "observed_candidate": candidate,
        "observed_judge": judge,
        "epoch": epoch,
        "score_digest": digest,
    }


WRONG: Mapping[str, tuple[Signature, ...]] = {
    "rebalanced": (_sign(judge="jb"), _sign(judge="jb")),
    "scored twice": (_sign(digest="d2"),),
    "old token": (_sign(epoch=1),),
    "other candidate": (_sign(candidate="cb"),),
    "lost answer": (_sign(), _sign()),
    "missing echo": (_sign(judge=""), _sign(candidate="")),
}
"""What arrives besides the bound judge's signature."""


async def _schedule(batch: Batch, kind: str, rng: Random) -> bool:
    """Play one; whether every row equals its bind token, and was never changed."""
    await batch.send("mint", run="run", candidate="ca", judge="ja", epoch=1)
    others = [signature for each in SCHEDULES if rng.random() < 0.3 for signature in WRONG[each]]  # noqa: PLR2004
    messages: list[Signature] = [*WRONG[kind], *others, _sign()]
    rng.shuffle(messages)
    rebind_at = rng.randrange(len(messages)) if kind == "old token" else None
    rows: dict[str, object] = {}
    for number, signature in enumerate(messages):
        if number == rebind_at:
            await batch.send("rebind", run="run", epoch=1, candidate="ca", judge="jb")
        await batch.send("commit", **signature)
        state = await batch.state()
        row, token = state["rows"].get("run"), state["tokens"]["run"]
        bound = row is None or {name: row[name] for name in token} == token
        signed = row is None or rows.setdefault("run", row) == row
        honest = row is None or _was_presented(row, messages[: number + 1])
        if not (bound and signed and honest):
            return False
    return True


def _was_presented(row: Mapping[str, object], messages: list[Signature]) -> bool:
    """Somebody who is who the row names presented that digest under that epoch."""
    wanted = (row["candidate"], row["judge"], row["epoch"], row["digest"])
    names = ("observed_candidate", "observed_judge", "epoch", "score_digest")
    return any(tuple(message[name] for name in names) == wanted for message in messages)


async def _play(stage: Stage) -> Mapping[str, Tally]:
    tally = Tally("schedules")
    cases = [(kind, policy, seed) for kind in SCHEDULES for policy in POLICIES for seed in stage.seeds(SEEDS)]

    async def one(case: tuple[str, str, int]) -> None:
        kind, policy, seed = case
        async with stage.batch({"policy": policy, "replay_budget": 2}) as batch:
            held = await _schedule(batch, kind, stage.rng("judge", *case))
            tally.count(held, f"{kind} under {policy}, seed {seed}")

    await stage.each(cases, one)
    return {HELD: tally}


RULES = (Rule("signatures", _play, {"sticky_routing": HELD}),)
