"""Fence 9, accepted: 100 late wake-ups, duplicate deliveries, drifted trees, leases that expired: 0 stale verdicts.

Every verdict is written so that it names the generation and the tree that it was reached on; whatever stands in the
state must have been reached on the generation and the tree that stand there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

WAKE_UPS = 100
KINDS = ("late wake-up", "duplicate delivery", "hash drift", "expired lease")
HELD = "no stale verdict is attached"

Verdict = Mapping[str, object]


def _verdict(gen: int, tree_hash: str) -> Verdict:
    return {"step": "s", "gen": gen, "tree_hash": tree_hash, "verdict": f"{gen} {tree_hash}", "schema": "v1"}


async def _honest(batch: Batch) -> bool:
    """What stands there was reached on what stands there."""
    at = (await batch.state())["steps"]["s"]
    return at["verdict"] is None or at["verdict"] == f"{at['gen']} {at['tree_hash']}"


async def _schedule(batch: Batch, kind: str, rng: Random) -> bool:
    """The worker tests what it was given; meanwhile the step moves on, or its disk does."""
    await batch.send("record", step="s", gen=1, tree_hash="tree 1")
    believed, gen, tree = _verdict(1, "tree 1"), 1, "tree 1"
    if kind == "expired lease" or (kind == "late wake-up" and rng.random() < 0.5):  # noqa: PLR2004
        tree = rng.choice(["tree 1", "tree 2"])
        gen = (await batch.send("supersede", step="s", gen=1, tree_hash=tree))["gen"]
    elif kind == "late wake-up":
        gen, tree = 2, "tree 2"
        await batch.send("record", step="s", gen=gen, tree_hash=tree)
    good = _verdict(gen, tree)
    messages = {
        "late wake-up": [believed, good],
        "duplicate delivery": [good, good, {**good, "verdict": "another verdict"}],
        "hash drift": [_verdict(gen, "drifted"), good],
        "expired lease": [believed, believed, good],
    }[kind]
    rng.shuffle(messages)
    held = True
    for message in messages:
        answer = await batch.send("attach", **message)
        if message == believed != good:
            held &= answer["verb"] == "reject"
        held &= await _honest(batch) or kind == "duplicate delivery"
    final = (await batch.state())["steps"]["s"]["verdict"]
    first = next(message["verdict"] for message in messages if message["gen"] == gen and message["tree_hash"] == tree)
    return held and final == first


async def _play(stage: Stage) -> Mapping[str, Tally]:
    tally = Tally("verdicts that came late, twice or drifted")
    cases = [(kind, seed) for kind in KINDS for seed in stage.seeds(WAKE_UPS)]

    async def one(case: tuple[str, int]) -> None:
        async with stage.batch({"schemas": ["v1"]}) as batch:
            tally.count(await _schedule(batch, case[0], stage.rng("workspace", *case)), f"{case[0]}, seed {case[1]}")

    await stage.each(cases, one)
    return {HELD: tally}


RULES = (Rule("late wake-ups", _play, {"job_id_only": HELD, "gen_only": HELD}),)
