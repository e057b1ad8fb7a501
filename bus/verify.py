"""`evalbus verify`: each fence's acceptance rule on a live server, and every mutant caught.

A property holds when no schedule broke it on the server. A mutant, the model with one check taken out, plays the same
schedules and must break the property named for it; one that survives means that the rule could not have seen the fence
fail, and is a failure too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from bus.acceptance import (
    admission,
    completion,
    histogram,
    indoubt,
    join,
    judge,
    ledger,
    outbox,
    plane,
    sandbox,
    transcript,
    workspace,
)
from bus.acceptance.rule import Rule, Stage, Tally
from bus.errors import InputError
from bus.link import Door
from bus.models import MUTANTS
from bus.nearest import nearest
from bus.port import Runtime
from bus.redis_bus import RedisBus
from bus.server_player import ServerPlayer
from bus.vectors import ModelPlayer, Player

__all__ = ["FENCES", "Line", "Verification", "verify"]

FENCES: Mapping[str, ModuleType] = {
    "plane": plane,
    "outbox": outbox,
    "indoubt": indoubt,
    "completion": completion,
    "histogram": histogram,
    "judge": judge,
    "transcript": transcript,
    "sandbox": sandbox,
    "workspace": workspace,
    "ledger": ledger,
    "admission": admission,
    "join": join,
}
"""Fence → its acceptance rules, in the order of the fences."""


@dataclass(frozen=True, slots=True)
class Line:
    """One property of one fence."""

    fence: str
    held: str
    """The property."""
    unit: str
    denominator: int
    violations: int
    stories: tuple[str, ...]
    """Where the first violations can be found again."""
    mutants: Mapping[str, str | None]
    """Mutant → the property that it broke, or None: it survived."""

    @property
    def ok(self) -> bool:
        """Nothing broke on the server, and every mutant did."""
        return self.violations == 0 and self.denominator > 0 and None not in self.mutants.values()


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of all."""

    seed: int
    lines: tuple[Line, ...]

    @property
    def ok(self) -> bool:
        """Every property held, every mutant was caught."""
        return all(line.ok for line in self.lines)

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` writes; its keys are a promise to scripts."""
        return {
            "seed": self.seed,
            "fences": [
                {
                    "fence": line.fence,
                    "property": line.held,
                    "denominator": line.denominator,
                    "violations": line.violations,
                    "mutants": dict(line.mutants),
                }
                for line in self.lines
            ],
        }


@dataclass(frozen=True, slots=True)
class _Work:
    fence: str
    rule: Rule
    seed: int
    tick: Callable[[int], None]

    async def on(self, make: Callable[[], Player]) -> Mapping[str, Tally]:
        """Play the rule."""
        return await self.rule.play(Stage(self.fence, make, seed=self.seed, tick=self.tick))


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """The fences to verify; all when none is named. Raises InputError with the known ones."""
    for name in names:
        if name not in FENCES:
            near = nearest(name, FENCES)
            known = f"one of {', '.join(FENCES)}"
            raise InputError(f"no fence {name!r}", remedy=f"did you mean {near}? it is {known}" if near else known)
    return tuple(dict.fromkeys(names)) or tuple(FENCES)


async def verify(
    names: Sequence[str], door: Door, runtime: Runtime, *, seed: int, tick: Callable[[str, int], None]
) -> Verification:
    """Play every rule of the fences on the server and on its mutants. `tick` hears the fence and schedules played.

    Raises InputError for an unknown fence, ServerError.
    """
    lines: list[Line] = []
    bus = RedisBus(door, runtime)
    try:
        for fence in check_names(names):
            for rule in FENCES[fence].RULES:
                work = _Work(fence, rule, seed, partial(tick, fence))
                lines += await _lines(work, partial(ServerPlayer, door, runtime, bus=bus))
    finally:
        await bus.aclose()
    return Verification(seed, tuple(lines))


async def _lines(work: _Work, server: Callable[[], Player]) -> list[Line]:
    tallies = await work.on(server)
    mutants: dict[str, dict[str, str | None]] = {held: {} for held in tallies}
    for mutant, held in work.rule.breaks.items():
        broken = await work.on(partial(ModelPlayer, mutant))
        mutants[held][mutant] = held if broken[held].broken else None
    return [
        Line(
            fence=work.fence,
            held=held,
            unit=tally.unit,
            denominator=tally.examined,
            violations=tally.broken,
            stories=tuple(tally.violations),
            mutants=mutants[held],
        )
        for held, tally in tallies.items()
    ]


def unclaimed_mutants() -> dict[str, set[str]]:
    """Mutants that no rule is there to catch, by fence: there must be none."""
    claimed = {fence: {mutant for rule in module.RULES for mutant in rule.breaks} for fence, module in FENCES.items()}
    return {fence: set(MUTANTS[fence]) - claimed[fence] for fence in FENCES if set(MUTANTS[fence]) - claimed[fence]}
