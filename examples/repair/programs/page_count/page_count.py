"""Numbers of a paginated listing."""

from __future__ import annotations


def page_count(items: int, per_page: int) -> int:
    """Return how many pages show `items` items; an empty listing has no page."""
    if per_page < 1:
        raise ValueError("a page shows at least one item")
    if items < 0:
        raise ValueError("a listing cannot hold fewer than no items")
    return items // per_page


def page_summary(items: int, per_page: int) -> str:
    """Return the line below the listing, such as `3 pages`."""
    pages = page_count(items, per_page)
    return "1 page" if pages == 1 else f"{pages} pages"
