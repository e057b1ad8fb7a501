"""Which loans of a library may be renewed."""

from __future__ import annotations

from dataclasses import dataclass

MAX_RENEWALS = 3


@dataclass(frozen=True)
class Loan:
    """A lent book; `reserved` tells whether somebody else waits for it."""

    title: str
    renewals: int = 0
    reserved: bool = False
    overdue_days: int = 0


def may_renew(loan: Loan) -> bool:
    """Tell whether the loan may be renewed: not overdue, nobody waiting, fewer than three renewals."""
    if loan.overdue_days > 0:
        return False
    return not loan.reserved and loan.renewals < MAX_RENEWALS


def renewable(loans: list[Loan]) -> list[str]:
    """Return the titles that may be renewed, in alphabetical order."""
    return sorted(loan.title for loan in loans if may_renew(loan))
