"""How much paint a room needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

COVERAGE_M2_PER_LITRE = 10


@dataclass(frozen=True)
class Room:
    """A rectangular room, in metres; `openings` is the area of its doors and windows."""

    length: float
    width: float
    height: float
    openings: float = 0.0


def wall_area(room: Room) -> float:
    """Return the area to paint in square metres: four walls without doors and windows."""
    area = 2 * (room.length + room.width) * room.height - room.openings
    if area < 0:
        raise ValueError("the openings are larger than the walls")
    return area


def litres(room: Room, coats: int = 2) -> int:
    """Return the whole litres to buy for that many coats."""
    return math.ceil(wall_area(room) * coats / COVERAGE_M2_PER_LITRE)
