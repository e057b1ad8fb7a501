"""Reserving stock for orders: an order gets all its lines or none."""

from __future__ import annotations


class Warehouse:
    """What is on the shelves, and how much of it is promised to orders."""

    def __init__(self, stock: dict[str, int]) -> None:
        """Start with `stock`, a number of pieces for each article."""
        self._stock = dict(stock)
        self._reserved: dict[str, int] = {}

    def available(self, article: str) -> int:
        """Return how many pieces of `article` can still be reserved."""
        return self._stock.get(article, 0) - self._reserved.get(article, 0)

    def reserve(self, order: dict[str, int]) -> bool:
        """Reserve each line of `order`, or nothing if one is short; return whether it was reserved."""
        if any(pieces > self.available(article) for article, pieces in order.items()):
            return False
        for article, pieces in order.items():
            self._reserved[article] = self._reserved.get(article, 0) + pieces
        return True

    def ship(self, order: dict[str, int]) -> None:
        """Take a reserved order off the shelves: it is neither in stock nor reserved any more."""
        for article, pieces in order.items():
            self._stock[article] -= pieces
            self._reserved[article] -= pieces
