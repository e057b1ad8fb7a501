"""How often one run, or its score, was tried in vain, by what was said of each lease: what may end it for that alone.

A holder that falls silent may have died of it. One that has to stop says nothing by it, twenty times. One whose machine
cannot do it never does, but for what the machines between them come to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Tries"]

_STOPS = 20
_MACHINES, _ALONE, _ALL = 5, 10, 100


@dataclass(slots=True)
class Tries:
    """Of a run's workers, or of its scorers."""

    counted: int = 0
    """Leases that count as attempts."""
    stops: int = 0
    machines: set[str] = field(default_factory=set)
    unfit: int = 0
    """Hand-backs of machines that could not do it …"""
    lone: int = 0
    """… and of these, while nobody else was at work. It and `machines` leave out what a machine itself sees."""

    def granted(self, *, voided: bool) -> None:
        """A lease; `voided`: the one before it went with the server's life, which is nobody's failure."""
        self.counted += not voided

    def stopped(self) -> None:
        """Handed back by a holder that had to stop."""
        self.stops += 1
        self.counted -= self.stops <= _STOPS

    def unfit_for(self, machine: str, *, alone: bool, seen: bool) -> None:
        """By a machine that could not do it. `alone`: nobody else was at work. `seen`: it finds it itself."""
        self.unfit += 1
        self.counted -= 1
        if not seen:
            self.machines.add(machine)
            self.lone += alone

    def is_its_own_doing(self, machine: str, *, alone: bool, seen: bool) -> bool:
        """Whether it may be said to be so, where this one could not do it either."""
        machines, lone = (self.machines, self.lone) if seen else (self.machines | {machine}, self.lone + alone)
        return len(machines) >= _MACHINES or lone >= _ALONE or self.unfit + 1 >= _ALL
