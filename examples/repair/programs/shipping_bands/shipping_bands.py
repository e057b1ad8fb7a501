"""Postage of a parcel by its weight."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """Parcels up to and including `limit_g` grams cost `price_p` pence."""

    limit_g: int
    price_p: int


BANDS = (Band(100, 155), Band(750, 249), Band(2000, 399), Band(10_000, 699))


def postage(weight_g: int) -> int:
    """Return the price in pence of the first band whose limit the parcel does not exceed."""
    if weight_g <= 0:
        raise ValueError("a parcel weighs something")
    for band in BANDS:
        if weight_g < band.limit_g:
            return band.price_p
    raise ValueError(f"{weight_g} g is too heavy to post")
