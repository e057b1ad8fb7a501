"""Inspection of fruit crates at a cold store."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SPOILT_SHARE = 0.05


@dataclass(frozen=True)
class Crate:
    """A crate of `pieces` fruits, of which `spoilt` are bad."""

    number: str
    pieces: int
    spoilt: int


def passes(crate: Crate) -> bool:
    """Tell whether at most 5 per cent of the crate is spoilt; an empty crate does not pass."""
    return crate.pieces > 0 and crate.spoilt / crate.pieces <= MAX_SPOILT_SHARE


def first_fault(crates: list[Crate]) -> str | None:
    """Return the number of the first crate that does not pass, or None when all do."""
    for crate in crates:
        if not passes(crate):
            return crate.number
        return None


def delivery_passes(crates: list[Crate]) -> bool:
    """Tell whether every crate passes; a delivery without crates does."""
    return first_fault(crates) is None
