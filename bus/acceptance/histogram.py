"""Fence 5, accepted: the snapshot is the same bytes for every arrival order of the same accepted set.

1,000 seeded shuffles of one set of scores, with stale epochs, digest mismatches, duplicates, deliveries after the close
and re-fences among them, with attempts to read the number and to close before it is time. What the set must come to is
computed here, apart from the fence.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from bus.acceptance.rule import Batch, Rule, Stage, Tally

__all__ = ["RULES"]

SEEDS = 1_000
RUNS = ("n1", "n2", "n3", "n4", "n5")
FINAL: Mapping[str, tuple[int, str]] = {"n1": (1, "pass"), "n2": (2, "fail"), "n3": (1, "pass"), "n4": (3, "pass")}
"""Run → the epoch that scores it, and its bin; the last run is a hole."""
CONFIG = {"intended": list(RUNS), "quorum": 3, "bins": ["pass", "fail"], "max_in_flight": 5}


def _snapshot_id() -> str:
    rows = sorted([run, f"art-{run}", epoch, bin_, "1"] for run, (epoch, bin_) in FINAL.items())
    content = {
        "accepted": len(rows),
        "bins": {name: sum(row[3] == name for row in rows) for name in ("pass", "fail")},
        "holes": [["n5", "lost"]],
        "intended": len(RUNS),
        "quorum": 3,
        "rows": rows,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


EXPECTED = _snapshot_id()


@dataclass(frozen=True, slots=True)
class _Message:
    op: str
    args: Mapping[str, object]


def _score(run: str, epoch: int, bin_: str, digest: str | None = None) -> _Message:
    return _Message("score", {"run": run, "digest": digest or f"art-{run}", "epoch": epoch, "bin": bin_, "value": "1"})


def _story(run: str) -> list[_Message]:
    """What happens to one run, in its order."""
    if run not in FINAL:
        return [_Message("abandon", {"run": run, "epoch": 0, "why": "lost"})]
    epoch, bin_ = FINAL[run]
    fences = [_Message("fence", {"run": run, "epoch": one, "digest": f"art-{run}"}) for one in range(1, epoch + 1)]
    return [*fences, _score(run, epoch, bin_)]


def _noise(rng: Random) -> list[_Message]:
    """What arrives besides, once its run has its last epoch, and must change nothing."""
    run = rng.choice(sorted(FINAL))
    epoch, bin_ = FINAL[run]
    other = "fail" if bin_ == "pass" else "pass"
    return [
        rng.choice(
            [
                _score(run, epoch + 5, other),
                _score(run, max(epoch - 1, 0), other),
                _score(run, epoch, other, digest="other bytes"),
                _Message("fence", {"run": run, "epoch": epoch, "digest": "other bytes"}),
                _Message("fence", {"run": "stranger", "epoch": 1, "digest": "art"}),
                _Message("abandon", {"run": run, "epoch": epoch + 5, "why": "late"}),
            ]
        )
        for _ in range(rng.randint(2, 8))
    ]


def _shuffled(rng: Random) -> list[_Message]:
    """The stories of all runs, interleaved, and the noise in between."""
    stories = [list(reversed(_story(run))) for run in RUNS]
    noise = _noise(rng)
    order: list[_Message] = []
    fenced: set[object] = {"stranger"}
    while any(stories) or noise:
        ready = [message for message in noise if message.args["run"] in fenced]
        if ready and rng.random() < 0.3:  # noqa: PLR2004
            order.append(rng.choice(ready))
            noise.remove(order[-1])
        elif alive := [story for story in stories if story]:
            message = rng.choice(alive).pop()
            order += [message, message] if rng.random() < 0.2 else [message]  # noqa: PLR2004 - delivered twice
            if message.op == "fence" and message.args["epoch"] == FINAL[str(message.args["run"])][0]:
                fenced.add(message.args["run"])
        else:
            order.append(noise.pop())
    return order


@dataclass(frozen=True, slots=True)
class _Seen:
    early_numbers: int
    """Numbers that were told before the close."""
    snapshots: Sequence[Any]
    """Every snapshot id that was told."""
    final: Mapping[str, Any]
    moved: bool
    """The state changed after the close."""


async def _schedule(batch: Batch, rng: Random) -> _Seen:
    early, snapshots = 0, []
    order = _shuffled(rng)
    for message in order:
        await batch.send(message.op, **message.args)
        if rng.random() < 0.2:  # noqa: PLR2004
            early += (await batch.send("pass_rate"))["verb"] == "commit"
        if rng.random() < 0.2:  # noqa: PLR2004
            answer = await batch.send("close")
            snapshots += [answer["snapshot_id"]] if answer["verb"] == "commit" else []
    await batch.send("drain")
    snapshots.append((await batch.send("close")).get("snapshot_id"))
    closed = dict(await batch.state())
    for message in rng.sample(order, min(5, len(order))):
        await batch.send(message.op, **message.args)
    after = dict(await batch.state())
    closed.pop("refusals")
    after.pop("refusals")
    return _Seen(early, snapshots, after, closed != after)


SAME, EARLY, STILL = "the same set gives the same snapshot", "no number before the close", "nothing moves after it"


async def _play(stage: Stage) -> Mapping[str, Tally]:
    tallies = {held: Tally("schedules") for held in (SAME, EARLY, STILL)}

    async def one(seed: int) -> None:
        async with stage.batch(CONFIG) as batch:
            seen = await _schedule(batch, stage.rng("histogram", seed))
        same = set(seen.snapshots) == {EXPECTED} and seen.final["snapshot_id"] == EXPECTED
        tallies[SAME].count(same, f"seed {seed}")
        tallies[EARLY].count(seen.early_numbers == 0, f"seed {seed}")
        tallies[STILL].count(not seen.moved, f"seed {seed}")

    await stage.each(stage.seeds(SEEDS), one)
    return tallies


RULES = (
    Rule(
        "shuffles of one set",
        _play,
        {"quorum_without_digest": SAME, "close_without_drain": SAME, "mutable_mean": EARLY},
    ),
)
