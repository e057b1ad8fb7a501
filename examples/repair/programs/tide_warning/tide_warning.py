"""When a coastal path has to be closed."""

from __future__ import annotations

from dataclasses import dataclass

HIGH_WATER_M = 5.2
GALE_KNOTS = 34


@dataclass(frozen=True)
class Forecast:
    """The expected height of the tide and the wind at its time."""

    tide_m: float
    wind_knots: int
    onshore: bool


def is_closed(forecast: Forecast) -> bool:
    """Tell whether the path is closed: at high water, or when an onshore wind reaches gale force."""
    flooded = forecast.tide_m >= HIGH_WATER_M
    stormy = forecast.wind_knots >= GALE_KNOTS or forecast.onshore
    return flooded or stormy


def closures(forecasts: dict[str, Forecast]) -> list[str]:
    """Return the days on which the path is closed, in the order given."""
    return [day for day, forecast in forecasts.items() if is_closed(forecast)]
