"""The summary at the end of a bank statement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FEE_P = 30


@dataclass
class Summary:
    """Sums in pence; the bank takes a fee of 30 pence for each payment out."""

    paid_in: int = 0
    paid_out: int = 0
    fees: int = 0

    @property
    def change(self) -> int:
        """By how much the balance has grown."""
        return self.paid_in - self.paid_out - self.fees


def summarise(amounts: Iterable[int]) -> Summary:
    """Add up the bookings: positive amounts were paid in, negative ones out."""
    summary = Summary()
    for amount in amounts:
        if amount >= 0:
            summary.paid_in += amount
            summary.fees += FEE_P
        else:
            summary.paid_out -= amount
    return summary
