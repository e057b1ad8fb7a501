"""Properties and what was counted of them: how many cases were looked at, how many broke it, and where.

A property that nothing could have broken proves nothing, so each has its own denominator, and says so when it is zero.
"""

from __future__ import annotations

from bus.checker.checked import Check
from bus.checker.said import Said

__all__ = ["Board", "Property"]

_SHOWN = 20  # entries named of each property; all are counted


class Property:
    """One property: `see` is told of each case."""

    __slots__ = ("_entries", "_unit", "_why", "examined", "id", "text", "violations")

    def __init__(self, name: str, text: str, unit: str) -> None:
        """`name`: its stable id. `unit`: what its cases are, in the plural."""
        self.id, self.text = name, text
        self.examined = self.violations = 0
        self._unit = unit
        self._entries: list[str] = []
        self._why = ""  # of the first

    def see(self, holds: bool, where: Said | str, why: str, *told: object) -> bool:
        """One more case. Returns `holds`.

        `why` says what is wrong with it if it does not hold; `told` is put into its braces, then only: there are
        millions of cases, and nearly all hold.
        """
        self.examined += 1
        if not holds:
            self._break(where.id if isinstance(where, Said) else str(where), why.format(*told))
        return holds

    def lack(self, count: int, where: str, why: str) -> None:
        """So many cases that ought to be there, and are not."""
        self.examined += count
        self.violations += count
        if count:
            self._tell(where, why)

    def _break(self, where: str, why: str) -> None:
        self.violations += 1
        self._tell(where, why)

    def _tell(self, where: str, why: str) -> None:
        if len(self._entries) < _SHOWN:
            self._entries.append(where)
        self._why = self._why or why

    def check(self) -> Check:
        """What came of it."""
        if not self.examined:
            says = f"nothing to examine: no {self._unit}"
        elif not self.violations:
            says = f"holds for all {self.examined} {self._unit}"
        else:
            says = f"broken by {self.violations} of {self.examined} {self._unit}; first {self._entries[0]}: {self._why}"
        return Check(f"{self.id}: {self.text}", self.examined, self.violations, tuple(self._entries), says, self._why)


class Board:
    """All properties of one check, in the order in which they were put up."""

    def __init__(self) -> None:
        """Empty."""
        self.properties: dict[str, Property] = {}

    def add(self, name: str, text: str, unit: str) -> Property:
        """Put one up."""
        if name in self.properties:
            raise AssertionError(f"two properties are called {name}")
        made = self.properties[name] = Property(name, text, unit)
        return made

    def checks(self) -> tuple[Check, ...]:
        """What came of all."""
        return tuple(one.check() for one in self.properties.values())
