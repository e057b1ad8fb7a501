"""A schedule: which suite, which seed, what goes wrong. Drawn from a number, or read from a file that repeats one."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from bus.errors import InputError
from workers.files import write_whole
from workers.simulating.faults import ALL, Dice, Fault, Listed, read_faults
from workers.simulating.findings import Finding, find
from workers.simulating.mutants import Mutant
from workers.simulating.play import Crew, Played, play
from workers.simulating.setting import BUILT_IN, Setting, built_in, of_suite
from workers.suite import load_suite

__all__ = ["Schedule", "drawn", "read_schedule", "settings_of", "write_schedule"]

_FORMAT: Final = "evalbus-schedule"
_LARGE: Final = 1 / 16
"""How many schedules have more machines than may say of one run that they cannot do it."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One batch and what happens to it. `faults` None: they are drawn from the seed, of the `kinds`."""

    setting: Setting
    seed: int
    crew: Crew
    kinds: tuple[str, ...] = ALL
    faults: tuple[Fault, ...] | None = None
    mutant: Mutant | None = None

    def played(self) -> Played:
        """Play it."""
        name, lease = str(self.seed), self.setting.suite.lease
        source = Dice(f"{name}/faults", lease, self.kinds) if self.faults is None else Listed(self.faults)
        return play(self.setting, name, source, self.crew, self.mutant)

    def found(self, *, replayed: bool = True) -> tuple[Played, Finding]:
        """Play it, and look at what came of it."""
        played = self.played()
        return played, find(self.setting, played, replayed=replayed)

    def of(self, faults: Sequence[Fault]) -> Schedule:
        """The same with these faults."""
        return replace(self, faults=tuple(faults))


def settings_of(suite: Path | None, cases: int | None = None) -> tuple[Setting, ...]:
    """What is simulated: the suite at a path, or our own ones. Raises InputError."""
    if suite is None:
        return tuple(built_in(name) for name in BUILT_IN)
    loaded = load_suite(suite, check_code=False)
    return (of_suite(loaded) if cases is None else of_suite(loaded, cases),)


def drawn(
    settings: Sequence[Setting], seed: int, kinds: tuple[str, ...] = ALL, mutant: Mutant | None = None
) -> Schedule:
    """The schedule of a seed: one of the settings, some processes, faults of these kinds."""
    dice = random.Random(f"{seed}/crew")  # noqa: S311 - a schedule, no secret
    crew = Crew(dice.choice((1, 1, 2)), dice.choice((1, 2, 2, 3)), dice.choice((1, 1, 2)))
    machines = random.Random(f"{seed}/machines")  # noqa: S311 - likewise
    crew = replace(crew, together=machines.choice((1, 1, 2)))
    if machines.random() < _LARGE:
        crew = replace(crew, workers=6, scorers=6, together=1)
    return Schedule(settings[seed % len(settings)], seed, crew, kinds, None, mutant)


def write_schedule(schedule: Schedule, property_: str, suite: Path | None, file: Path) -> None:
    """Write a file that repeats the schedule, with the property that it breaks."""
    told = {
        "format": _FORMAT,
        "version": 1,
        "suite": schedule.setting.name if suite is None else str(suite.resolve()),
        "built_in": suite is None,
        "cases": len(schedule.setting.suite.cases),
        "digest": schedule.setting.suite.digest,
        "seed": schedule.seed,
        "crew": asdict(schedule.crew),
        "property": property_,
        "faults": [asdict(fault) for fault in schedule.faults or ()],
    }
    write_whole(file, json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def read_schedule(file: Path) -> Schedule:
    """Read such a file. Raises InputError."""
    told = _read(file)
    try:
        name, seed, crew = str(told["suite"]), int(told["seed"]), Crew(**told["crew"])
        is_own, cases, digest = bool(told["built_in"]), int(told["cases"]), str(told["digest"])
    except (KeyError, TypeError, ValueError):
        raise _unreadable(file) from None
    if is_own and name not in BUILT_IN:
        raise InputError(f"there is no built-in suite {name!r}", file=file, remedy=f"one of {', '.join(BUILT_IN)}")
    setting = built_in(name) if is_own else settings_of(Path(name), cases)[0]
    if setting.suite.digest != digest:
        raise InputError(
            f"was found with another state of suite {name}, or by another release: it would not be repeated",
            file=file,
            remedy="simulate its seed anew",
        )
    return Schedule(setting, seed, crew, faults=read_faults(told.get("faults"), file))


def _read(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    except ValueError:
        raise _unreadable(file) from None
    if not isinstance(told, dict) or told.get("format") != _FORMAT or told.get("version") != 1:
        raise _unreadable(file)
    return told


def _unreadable(file: Path) -> InputError:
    return InputError("is no schedule", file=file, remedy="a file that `evalbus simulate` wrote")
