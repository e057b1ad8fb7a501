"""Figures as paths. Each is drawn on a sheet that the page stretches to its place: as many units wide as there are
values, 100 high, y downwards. So a path needs no measure of a screen, and stands in the file once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["HEIGHT", "area", "bars", "line"]

HEIGHT: Final = 100
_LEAST: Final = 6  # a single refusal among thousands of admissions is what the reader looks for: it stays visible


def bars(values: Sequence[int]) -> str:
    """A bar for each value that is not 0, the largest of them as high as the sheet."""
    most = max(values, default=0)
    return "".join(
        f"M{index} {HEIGHT}V{HEIGHT - max(_LEAST, value * HEIGHT // most)}h1V{HEIGHT}z"
        for index, value in enumerate(values)
        if value
    )


def area(values: Sequence[int]) -> str:
    """The same without gaps between: a level, which holds until it changes."""
    most = max(values, default=0)
    if not most:
        return ""
    heights = [HEIGHT - value * HEIGHT // most for value in values]
    return f"M0 {HEIGHT}" + "".join(f"V{height}h1" for height in heights) + f"V{HEIGHT}z"


def line(points: Sequence[tuple[float, float]]) -> str:
    """A level over time through points of 0 to 1 each way, 1 being right and up; it holds until the next point."""
    if not points:
        return ""
    (x, y), *rest = points
    path = f"M{_place(x)} {_place(1 - y)}"
    path += "".join(f"H{_place(x)}V{_place(1 - y)}" for x, y in rest)
    return f"{path}H{HEIGHT}"


def _place(part: float) -> str:
    return f"{part * HEIGHT:.2f}".rstrip("0").rstrip(".")
