"""Rows as a table of plain lines, as wide as a terminal shows them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["columns", "columns_on", "without_empty_end"]

_WIDEST = 60  # places that a column has because of one cell


def columns(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """A line a row; the columns numbered in `right` end alike, the others begin alike.

    An ideograph takes two places, and a mark above a letter none. Nothing is cut, so that a name can be copied; a very
    long one moves the rest of its own row, and of no other.
    """
    from rich.cells import cell_len  # noqa: PLC0415 - a tenth of a second that `--help` need not pay

    widths = [
        max((w for cell in column if (w := cell_len(cell)) <= _WIDEST), default=0) for column in zip(*rows, strict=True)
    ]
    lines = []
    for row in rows:
        cells = []
        for at, (text, width) in enumerate(zip(row, widths, strict=True)):
            gap = " " * (width - cell_len(text))
            cells.append(gap + text if at in right else text + gap)
        lines.append("  ".join(cells).rstrip())
    return lines


def columns_on(console: Console, rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """The same for this console, titles first. A terminal that is too narrow would break each row anywhere: there a row
    is its first cell, and below it the others, each with its title.
    """
    from rich.cells import cell_len  # noqa: PLC0415

    lines = columns(rows, right)
    if not console.file.isatty() or max(map(cell_len, lines)) <= console.width:
        return lines
    titles, *others = rows
    return [line for row in others for line in (row[0], *_flowing(titles[1:], row[1:], console.width))]


def without_empty_end(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Titles and rows, without the last column where nothing stands in it."""
    count = len(titles) if any(row[-1] for row in rows) else len(titles) - 1
    return [list(line[:count]) for line in (titles, *rows)]


def _flowing(titles: Sequence[str], cells: Sequence[str], width: int) -> Iterator[str]:
    from rich.cells import cell_len  # noqa: PLC0415

    line = ""
    for title, text in zip(titles, cells, strict=True):
        item = f"{title} {text}"
        if line and cell_len(line) + 3 + cell_len(item) > width:
            yield line
            line = ""
        if text:
            line = f"{line} · {item}" if line else f"  {item}"
    if line:
        yield line
