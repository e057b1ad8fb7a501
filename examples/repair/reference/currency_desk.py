"""A bureau de change: amounts are converted through the home currency."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal

PENNY = Decimal("0.01")


def cross_rate(source: str, target: str, rates: dict[str, Decimal]) -> Decimal:
    """Return how much of `target` one unit of `source` buys.

    `rates` gives the worth of one unit of each currency in the home currency.
    """
    return rates[source] / rates[target]


def convert(amount: Decimal, source: str, target: str, rates: dict[str, Decimal]) -> Decimal:
    """Return `amount` of `source` in `target`, to the nearest hundredth; halves are rounded up."""
    if amount < 0:
        raise ValueError("an amount cannot be negative")
    exchanged = amount * cross_rate(source, target, rates)
    return exchanged.quantize(PENNY, rounding=ROUND_HALF_UP)
