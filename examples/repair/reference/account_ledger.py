"""A current account that charges for being overdrawn."""

from __future__ import annotations

from dataclasses import dataclass, field

OVERDRAFT_FEE = 500


@dataclass
class Account:
    """An account; all amounts are in pence. `entries` lists what changed the balance, oldest first."""

    overdraft_limit: int = 10_000
    balance: int = 0
    entries: list[tuple[str, int]] = field(default_factory=list)

    def _record(self, label: str, amount: int) -> None:
        self.balance += amount
        self.entries.append((label, amount))

    def deposit(self, amount: int) -> None:
        """Pay `amount` in. Raises ValueError unless it is positive."""
        if amount <= 0:
            raise ValueError("a deposit must be positive")
        self._record("deposit", amount)

    def withdraw(self, amount: int) -> None:
        """Pay `amount` out; if the account is overdrawn afterwards, charge the fee as well.

        Raises ValueError, and changes nothing, if the amount alone would exceed the overdraft limit.
        """
        if self.balance - amount < -self.overdraft_limit:
            raise ValueError("the overdraft limit would be exceeded")
        self._record("withdrawal", -amount)
        if self.balance < 0:
            self._record("fee", -OVERDRAFT_FEE)
