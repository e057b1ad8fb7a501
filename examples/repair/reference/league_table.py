"""The table of a football league."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Club:
    """What a club has earned so far."""

    name: str
    points: int
    scored: int
    conceded: int

    @property
    def difference(self) -> int:
        """Goals scored less goals conceded."""
        return self.scored - self.conceded


def ranking(clubs: list[Club]) -> list[str]:
    """Return the names, best first: more points, then the better goal difference, then by name."""
    ordered = sorted(clubs, key=lambda club: (-club.points, -club.difference, club.name))
    return [club.name for club in ordered]


def leader(clubs: list[Club]) -> str | None:
    """Return the name at the top of the table, or None when there are no clubs."""
    names = ranking(clubs)
    return names[0] if names else None
