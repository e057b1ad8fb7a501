"""Splitting a restaurant bill."""

from __future__ import annotations


def pence(amount: float) -> int:
    """Return an amount in pounds as whole pence, to the nearest penny."""
    return round(amount * 100)


def split_bill(total: float, guests: int) -> list[int]:
    """Return each guest's share in pence; the first few pay a penny more when it does not divide."""
    if guests < 1:
        raise ValueError("somebody has to pay")
    if total < 0:
        raise ValueError("a bill cannot be negative")
    share, left_over = divmod(pence(total), guests)
    return [share + 1 if guest < left_over else share for guest in range(guests)]
