"""Moving goods between the warehouses of a shop."""

from __future__ import annotations

Stock = dict[str, int]


def transfer(source: Stock, target: Stock, article: str, wanted: int) -> int:
    """Move up to `wanted` pieces of `article` from `source` to `target`; return how many moved.

    An article of which nothing is left is taken off the source's list.
    """
    if wanted < 0:
        raise ValueError("goods are moved one way only")
    available = source.get(article, 0)
    moved = min(wanted, available)
    if moved == 0:
        return 0
    source[article] = available - moved
    target[article] = target.get(article, 0) + moved
    if source[article] == 0:
        del source[article]
    return moved
