"""Giving change with as few coins as possible."""

from __future__ import annotations


def fewest_coins(amount: int, coins: list[int]) -> list[int] | None:
    """Return the fewest of `coins` that make `amount`, largest first; each coin may be used again.

    Returns None if the coins can't make the amount. Raises ValueError if a coin is not positive.
    """
    if any(coin < 1 for coin in coins):
        raise ValueError("a coin is worth at least 1")
    best: list[list[int] | None] = [[]]
    for target in range(1, amount + 1):
        shortest: list[int] | None = None
        for coin in coins:
            rest = best[target - coin] if coin <= target else None
            if rest is None:
                continue
            if shortest is None or coin > shortest[-1]:
                shortest = [*rest, coin]
        best.append(shortest)
    change = best[amount]
    return None if change is None else sorted(change, reverse=True)
