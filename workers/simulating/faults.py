"""What may go wrong in a simulated batch, and when.

A *fault* strikes one process at one of its calls: the third `seal` that `worker-1` makes. So a list of faults says the
same in every run of the same seed, also when some of them are left out: that is how a schedule is repeated and shrunk.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from bus.errors import InputError
from workers.simulating.bending import BENDABLE

__all__ = ["ALL", "KINDS", "Dice", "Fault", "Kind", "Listed", "Source", "Where", "chosen", "read_faults"]


Where: TypeAlias = Literal["step", "read", "sleep", "model", "tool", "work"]
"""The kinds of calls: those that change something, that are given entries, that wait, that reach an endpoint; and the
work itself, a solver or a verdict that begins."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A way in which things go wrong."""

    tells: str
    """In a line, for people."""
    where: tuple[Where, ...]
    """Which calls it may strike."""
    least: float = 0.0
    most: float = 0.0
    """How long it takes, in lease times."""
    weight: int = 2
    """How often it is drawn, beside the others."""
    only: frozenset[str] | None = None
    """The steps, or the endpoint's calls, that it may strike; None: all."""


_STEP: Final[tuple[Where, ...]] = ("step",)
_CALL: Final[tuple[Where, ...]] = ("step", "read")
_ANY: Final[tuple[Where, ...]] = ("step", "read", "sleep")
_MODEL: Final[tuple[Where, ...]] = ("model",)
_TOOL: Final[tuple[Where, ...]] = ("tool",)
_WORK: Final[tuple[Where, ...]] = ("work",)
_CROSSES: Final = frozenset({"seal", "tool_complete"})
"""Those that write under a key of their plane: with any other, a process of another plane finds no batch."""

_JUDGE: Final = frozenset({"judge"})
"""Calls of a model that judges."""

KINDS: Final[Mapping[str, Kind]] = {
    "crash-before": Kind("dies before the call is sent, and comes back", _ANY, 0.0, 3.0, 3),
    "crash-after": Kind("dies when the call was applied, and comes back", _CALL, 0.0, 3.0, 4),
    "gone-before": Kind("dies before the call is sent; another machine takes its place", _ANY, 0.0, 3.0),
    "gone-after": Kind("dies when the call was applied; another machine takes its place", _CALL, 0.0, 3.0),
    "stop": Kind("is told to stop, and comes back", ("step", "sleep"), 0.0, 2.0),
    "stall-before": Kind("stands still before the call is sent", _ANY, 0.5, 4.0, 4),
    "stall-after": Kind("stands still when the call was applied", _CALL, 0.5, 4.0, 4),
    "lost": Kind("the answer is lost, and the call is sent again", _CALL, 0.0, 1.5, 5),
    "repeated": Kind("a copy of the call arrives later", _STEP, 0.0, 4.0, 5),
    "overtaken": Kind("the call is on its way for a while, and others arrive before it", _STEP, 0.0, 0.5, 4),
    "clock": Kind("its clock jumps ahead", ("step", "sleep"), 0.5, 20.0),
    "redelivered": Kind("the messages that it holds are in the stream a second time", _STEP, weight=3),
    "taken": Kind("what it holds looks silent, and is given to somebody else", _STEP, weight=4),
    "crossed": Kind("the call is presented by a process of the other plane first", _STEP, weight=3, only=_CROSSES),
    "bent": Kind("the call is presented under another identity first", _STEP, weight=4, only=BENDABLE),
    "server-restart": Kind("the server dies when the call was applied, and comes back with its data", _STEP, 0.0, 1.2),
    "server-lost": Kind("the server is lost soon, and another goes on from before the call", _STEP, 0.02, 0.9),
    "server-clock": Kind("the server's clock jumps, and is right again a lease time later", _STEP, -4.0, 4.0),
    "model-cut": Kind("the model's answer breaks off", _MODEL),
    "model-late": Kind("the model's answer takes long", _MODEL, 0.2, 3.0),
    "model-429": Kind("the model asks for peace", _MODEL),
    "model-500": Kind("the model fails", _MODEL),
    "model-corrupt": Kind("the model's answer is none", _MODEL),
    "judge-other": Kind("another model judges", _MODEL, weight=6, only=_JUDGE),
    "judge-vague": Kind("the judge names no grade", _MODEL, weight=6, only=_JUDGE),
    "tool-silent": Kind("the tool does what it is asked for, and says nothing", _TOOL),
    "tool-unreachable": Kind("the call of the tool is lost on the way", _TOOL),
    "tool-late": Kind("the tool takes long", _TOOL, 0.1, 1.2),
    "tool-refused": Kind("the tool refuses: nothing was done", _TOOL),
    "unfit-full": Kind("its machine can do no run for a while, as its disk says at once", _WORK, 0.5, 20.0, 3),
    "unfit-seen": Kind("its machine can do no run for a while, and finds it when it tries", _WORK, 0.5, 20.0, 3),
    "unfit-unseen": Kind("its machine can do no run for a while, and finds nothing wrong", _WORK, 0.5, 40.0, 4),
    "unfit-hung": Kind("its machine can do no run for a while, and hangs when it tries", _WORK, 0.5, 20.0, 3),
    "unfit-all": Kind("no machine can do any run for a while, and each finds it when it tries", _WORK, 0.5, 20.0),
    "unfit-run": Kind("no machine can do this run for a while, and none finds anything wrong", _WORK, 0.5, 400.0),
}
"""By name."""

ALL: Final = tuple(KINDS)

_RATES: Final[Mapping[Where, float]] = {
    "step": 0.05,
    "read": 0.004,
    "sleep": 0.002,
    "model": 0.15,
    "tool": 0.15,
    "work": 0.05,
}
"""How likely a call is struck."""
_MOST, _MOST_MACHINES = 10, 2
"""Faults of one schedule; and of its machines, beside those."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong. It strikes the `nth` call (from 1) by which `process` does `at`."""

    process: str
    at: str
    nth: int
    kind: str
    seconds: float = 0.0
    """How long it takes, or what comes of it."""

    def __str__(self) -> str:
        """`worker-1, its 3rd seal: dies when the call was applied, … (1.2 s)`."""
        took = f" ({self.seconds:.3g} s)" if self.seconds else ""
        return f"{self.process}, its {ordinal(self.nth)} {self.at}: {KINDS[self.kind].tells}{took}"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `11th`."""
    last = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number % 100 in (11, 12, 13) else last}"


class Source:
    """Who says which call is struck."""

    def strike(self, process: str, at: str, nth: int, where: Where) -> Fault | None:
        """What happens to this call, which is of the kind `where`."""
        raise NotImplementedError


class _Hand:
    """Who throws dice, and how often something may still come of it."""

    def __init__(self, seed: str, least: int, most: int) -> None:
        self.dice = random.Random(seed)  # noqa: S311 - a schedule, no secret
        self.left = self.dice.randint(least, most)


class Dice(Source):
    """Draws from a seed; what was drawn is in `drawn`."""

    def __init__(self, seed: str, lease: float, kinds: Sequence[str] = ALL) -> None:
        """`lease`: the length of a lease in seconds."""
        self._lease = lease
        # Machines have dice of their own: what else goes wrong is the same in a schedule in which they do not break.
        self._calls, self._machines = _Hand(seed, 1, _MOST), _Hand(f"{seed}/machines", 0, _MOST_MACHINES)
        self._kinds = {where: [name for name in kinds if where in KINDS[name].where] for where in _RATES}
        self.drawn: list[Fault] = []

    def end(self) -> None:
        """Nothing goes wrong any more."""
        self._calls.left = self._machines.left = 0

    def strike(self, process: str, at: str, nth: int, where: Where) -> Fault | None:
        """See Source."""
        hand = self._machines if where == "work" else self._calls
        if hand.left <= 0 or hand.dice.random() >= _RATES[where]:
            return None
        names = [name for name in self._kinds[where] if (only := KINDS[name].only) is None or at in only]
        if not names:
            return None
        [name] = hand.dice.choices(names, [KINDS[name].weight for name in names])
        kind = KINDS[name]
        seconds = round(self._lease * hand.dice.uniform(kind.least, kind.most), 3)
        fault = Fault(process, at, nth, name, seconds)
        hand.left -= 1
        self.drawn.append(fault)
        return fault


class Listed(Source):
    """Those of a list."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        """In any order."""
        self._faults = {(fault.process, fault.at, fault.nth): fault for fault in faults}

    def strike(self, process: str, at: str, nth: int, where: Where) -> Fault | None:
        """See Source."""
        return self._faults.get((process, at, nth))


def chosen(names: str | None) -> tuple[str, ...]:
    """The kinds that a list with commas names; a name that ends in `-` stands for all that begin so.

    Raises InputError.
    """
    if names is None:
        return ALL
    found: list[str] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        fits = [kind for kind in KINDS if kind == name or (name.endswith("-") and kind.startswith(name))]
        if not fits:
            raise InputError(f"--faults: there is no fault {name!r}", remedy=f"one of {', '.join(KINDS)}")
        found += fits
    return tuple(dict.fromkeys(found))


def read_faults(told: object, file: Path) -> tuple[Fault, ...]:
    """The faults of a schedule's file. Raises InputError."""
    try:
        faults = tuple(_fault(one) for one in told) if isinstance(told, list) else None
    except (KeyError, TypeError, ValueError):
        faults = None
    if faults is None:
        raise InputError("its faults cannot be read", file=file, remedy="a file that `evalbus simulate` wrote")
    return faults


def _fault(told: Mapping[str, Any]) -> Fault:
    fault = Fault(str(told["process"]), str(told["at"]), int(told["nth"]), str(told["kind"]), float(told["seconds"]))
    if fault.kind not in KINDS or asdict(fault) != dict(told):
        raise ValueError(json.dumps(told))
    return fault
