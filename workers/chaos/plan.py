"""Which fault strikes when: drawn from the seed, whatever happens meanwhile.

Faults come in rounds. A round holds each of the faults once, in an order of its own, so that a short chaos has met many
of them and a long one all. How long a batch takes is the machine's affair; so the plan has no end, and a batch takes of
it what fits. The same seed gives the same strikes in the same order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bus.failpoints import Order
from workers.chaos.faults import Fault, World
from workers.processes.role_options import Role

__all__ = ["MISCHIEF", "POINTS", "Point", "Strike", "strikes"]


@dataclass(frozen=True, slots=True)
class Point:
    """A place between two steps, at which a process kills itself."""

    name: str
    order: Order
    roles: tuple[Role, ...]


_CLAIMS: Final = ("run.claim", "run.score_claim", "run.tool_claim")
_ENDS: Final = ("run.seal", "run.score", "run.tool_complete")
_BOTH: Final = (Role.WORKER, Role.SCORER)

POINTS: Final = (
    Point("before-claim", Order("before", _CLAIMS, "kill"), _BOTH),
    Point("after-claim", Order("after", _CLAIMS, "kill"), _BOTH),
    Point("prompt-left", Order("after", ("run.open_call", "run.open_judge"), "kill", 0.01), _BOTH),
    Point("answer-read", Order("before", ("run.bind_call", "run.bind_judge"), "kill"), _BOTH),
    Point("call-licensed", Order("after", ("run.tool_sent",), "kill", 0.01), (Role.WORKER,)),
    Point("effect-done", Order("before", ("run.tool_complete",), "kill"), (Role.WORKER,)),
    Point("script-applied", Order("after", (), "kill"), (*_BOTH, Role.PLANNER)),
    Point("before-ack", Order("before", _ENDS, "kill"), _BOTH),
    Point("after-ack", Order("after", _ENDS, "kill"), _BOTH),
)
"""Where `kill-at-point` strikes."""

LATE_ACK: Final = Order("before", _ENDS, "stall")
"""What `late-ack` orders, with the time."""

MISCHIEF: Final = (
    ("model", "cut"),
    ("model", "drop"),
    ("model", "late@1s"),
    ("model", "429@3"),
    ("model", "500"),
    ("model", "unterminated"),
    ("model", "stall"),
    ("model", "empty"),
    ("model", "wrong-model"),
    ("tickets", "drop"),
    ("tickets", "late@1s"),
    ("tickets", "429@2"),
    ("tickets", "500"),
    ("tickets", "duplicate"),
    ("tickets", "missing-echo"),
    ("tickets", "wrong-echo"),
    ("tickets", "commit-then-cut"),
    ("tickets", "commit-then-500"),
    ("tickets", "slow-commit@1s"),
)
"""What `endpoint` asks of the lab: an interface, and what its next requests meet.

Not among them: a stream in which something comes twice. It is another text, and nobody can tell; so another verdict.
"""


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault, and all that chance has to say of it."""

    fault: Fault
    pause: float
    """Since the one before, as a share of the mean pause: from 0.3 to 1.7."""
    pick: float
    """In [0, 1): which of those that it could strike."""
    length: float
    """In [0, 1): how long it lasts, between the fault's shortest and longest."""
    point: Point
    mischief: tuple[str, str]

    def of(self, among: Sequence[str]) -> str:
        """The one of these that it strikes."""
        return sorted(among)[int(self.pick * len(among))]

    def between(self, shortest: float, longest: float) -> float:
        """How long it lasts, in the unit of the two."""
        return shortest + self.length * (longest - shortest)

    def __str__(self) -> str:
        """As it is told."""
        what = {Fault.KILL_AT_POINT: f" {self.point.name}", Fault.ENDPOINT: f" {' '.join(self.mischief)}"}
        return f"{self.fault}{what.get(self.fault, '')}"


def strikes(seed: int, world: World, faults: Sequence[Fault], points: Sequence[Point]) -> Iterator[Strike]:
    """Without end. `points`: those that a suite's processes come by."""
    chance = random.Random(f"{seed}:{world}")  # noqa: S311 - it is to be repeated, not to be kept secret
    while True:
        for fault in chance.sample(list(faults), len(faults)):
            yield Strike(
                fault=fault,
                pause=chance.uniform(0.3, 1.7),
                pick=chance.random(),
                length=chance.random(),
                point=chance.choice(points),
                mischief=chance.choice(MISCHIEF),
            )
