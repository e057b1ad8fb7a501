"""Cutting a list of results into pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Page:
    """One page of results: pages count from 1, `first` and `last` are positions that count from 1."""

    number: int
    first: int
    last: int


def page_count(results: int, page_size: int) -> int:
    """Return how many pages `results` need. No results still make one (empty) page."""
    if page_size < 1:
        raise ValueError("a page has room for at least one result")
    return results // page_size + 1


def page(number: int, results: int, page_size: int) -> Page:
    """Return what page `number` shows; a number out of range gives the nearest page.

    An empty page has `first` 0 and `last` 0.
    """
    number = min(max(number, 1), page_count(results, page_size))
    if results == 0:
        return Page(number, 0, 0)
    first = (number - 1) * page_size + 1
    return Page(number, first, min(first + page_size - 1, results))
