"""Prices after several discounts, each of them taken off what the earlier ones have left."""

from __future__ import annotations

from collections.abc import Iterable


def remaining_share(percent: int) -> float:
    """Return the share of a price that a discount of `percent` leaves, from 0 to 1."""
    if not 0 <= percent <= 100:
        raise ValueError(f"a discount is 0 to 100 per cent, not {percent}")
    return (100 - percent) / 100


def discounted(price: float, discounts: Iterable[int]) -> float:
    """Return `price` after all discounts: 10 and 20 per cent leave 72 per cent of it."""
    share = 0.0
    for percent in discounts:
        share *= remaining_share(percent)
    return round(price * share, 2)
