"""Fuel consumption of a car from the log of its fill-ups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FillUp:
    """The tank was filled to the brim with `litres` at `odometer_km`."""

    odometer_km: int
    litres: float


def consumption(log: list[FillUp]) -> float:
    """Return the litres burnt per 100 km between the first and the last fill-up.

    What was filled first was burnt before the log began, so it does not count.
    """
    if len(log) < 2:
        raise ValueError("at least two fill-ups are needed")
    distance = log[-1].odometer_km - log[0].odometer_km
    if distance <= 0:
        raise ValueError("the car has not moved")
    burnt = sum(fill.litres for fill in log)
    return burnt * 100 / distance
