"""The machines of a schedule: which of them can do no run, since when and until when, and whether it finds that itself.

What a broken machine does to a run is done where the run's own code works: in its solver, and before its verdict. What
it finds by a look of its own is told by `SimulatedDisks`, in the place of the real ones.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from workers.processes.machine import Disks, machine_error
from workers.simulating.faults import Fault

__all__ = ["Machines", "SimulatedDisks", "rest_after"]

_LONGEST: Final = 150.0
"""Seconds that a machine rests at most between two looks: see `workers.processes.resting`."""
_AT_ONCE: Final = frozenset({"unfit-full"})
_SEEN: Final = frozenset({"unfit-full", "unfit-seen", "unfit-all"})
_HANGS: Final = frozenset({"unfit-hung"})
"""What a machine finds by a look at its disk, and when it tries to write; and where that does not end."""


def rest_after(seconds: float, lease: float) -> float:
    """For how long a machine may rest on that was broken for `seconds`: each rest is twice the one before it."""
    return min(2.0 * seconds + 2.0 * lease, max(_LONGEST, 1.25 * lease))


@dataclass(frozen=True, slots=True)
class _Spell:
    """A time in which a machine can do no run, or no machine can do one."""

    kind: str
    machine: str
    run: str
    until: float
    rested: float
    """When those that it struck have looked again."""

    def strikes(self, machine: str, run: str) -> bool:
        """Whether this machine can't do that run. `run` empty: any."""
        match self.kind:
            case "unfit-all":
                return True
            case "unfit-run":
                return self.run == run
            case _:
                return self.machine == machine


@dataclass(slots=True)
class Machines:
    """See the module's text."""

    loop: asyncio.AbstractEventLoop
    lease: float
    ends: list[str] = field(default_factory=list)
    """Runs that were ended for what machines could not do …"""
    wrong: list[str] = field(default_factory=list)
    """… and of these, while there was one that could."""
    _spells: list[_Spell] = field(default_factory=list)

    def breaks(self, fault: Fault, machine: str, run: str) -> None:
        """From here on."""
        until = self.loop.time() + fault.seconds
        self._spells.append(_Spell(fault.kind, machine, run, until, until + rest_after(fault.seconds, self.lease)))

    def unable(self, machine: str, run: str) -> str:
        """Why this machine can't do this run now; empty when it can."""
        now = self.loop.time()
        for spell in self._spells:
            if spell.until > now and spell.strikes(machine, run):
                return f"simulated: {spell.kind}"
        return ""

    def finds(self, machine: str, kinds: frozenset[str]) -> str:
        """What of these kinds a machine finds when it looks at itself."""
        now = self.loop.time()
        found = (one.kind for one in self._spells if one.until > now and one.strikes(machine, ""))
        return next((f"simulated: {kind}" for kind in found if kind in kinds), "")

    def has_been_fit(self, machine: str, run: str, seconds: float) -> bool:
        """Whether nothing has kept it from this run for so long, a rest included."""
        since = self.loop.time() - seconds
        return not any(spell.rested > since and spell.strikes(machine, run) for spell in self._spells)


class SimulatedDisks(Disks):
    """The disks of a simulated machine."""

    def __init__(self, machines: Machines, machine: str) -> None:
        """Of this machine."""
        super().__init__(())
        self._machines, self._machine = machines, machine

    def full(self) -> str:
        """See Disks."""
        return self._machines.finds(self._machine, _AT_ONCE)

    async def recheck(self) -> None:
        """See Disks."""
        if self._machines.finds(self._machine, _HANGS):
            await asyncio.Event().wait()  # also when it is right again: what was asked of it is lost
        if why := self._machines.finds(self._machine, _SEEN):
            raise machine_error(why, self.recheck)
