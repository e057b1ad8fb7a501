"""Price rules of a shop: each customer group has its own discount."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

Rule = Callable[[int], int]


def reduced(price: int, percent: int) -> int:
    """Return `price` in pence less `percent`; the reduction is rounded down to whole pence."""
    return price - price * percent // 100


def discount_rules(percents: dict[str, int]) -> dict[str, Rule]:
    """Return a rule for each group: it takes a price in pence and gives the reduced one.

    Raises ValueError for a percentage outside 0 to 100.
    """
    rules: dict[str, Rule] = {}
    for group, percent in percents.items():
        if not 0 <= percent <= 100:
            raise ValueError(f"{group}: {percent}% is no discount")
        rules[group] = lambda price: reduced(price, percent)
    return rules


def cheapest_group(price: int, rules: dict[str, Rule]) -> str | None:
    """Return the group that pays least for `price`, the first one of equals; None without groups."""
    return min(rules, key=lambda group: rules[group](price), default=None)
