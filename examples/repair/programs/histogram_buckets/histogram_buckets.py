"""Counting values in buckets of equal width."""

from __future__ import annotations


def histogram(values: list[float], low: float, high: float, buckets: int) -> list[int]:
    """Count `values` in equal `buckets` between `low` and `high`.

    A bucket includes its lower edge and not its upper one, except the last, which includes `high`.
    Values outside are left out. Raises ValueError if `high` is not above `low` or there is no bucket.
    """
    if high <= low or buckets < 1:
        raise ValueError("a histogram needs a range and at least one bucket")
    counts = [0] * buckets
    width = (high - low) / buckets
    for value in values:
        if not low <= value <= high:
            continue
        index = int((value - low) / width) % buckets
        counts[index] += 1
    return counts


def bars(counts: list[int], longest: int = 20) -> list[str]:
    """Return a bar of "#" for each count, the largest one `longest` signs long."""
    top = max(counts, default=0)
    return ["#" * (count * longest // top) if top else "" for count in counts]
