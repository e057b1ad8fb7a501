"""Labels of the seats in a theatre hall: rows are letters, seats are numbered from 1."""

from __future__ import annotations

from string import ascii_uppercase


def row_letters(rows: int) -> list[str]:
    """Return the letters of the first `rows` rows, at most 26."""
    if not 0 <= rows <= len(ascii_uppercase):
        raise ValueError(f"a hall has 0 to {len(ascii_uppercase)} rows, not {rows}")
    return list(ascii_uppercase[:rows])


def seat_labels(rows: int, seats_per_row: int) -> list[str]:
    """Return every label from A1 to the last seat of the last row, row by row."""
    return [f"{letter}{number}" for letter in row_letters(rows) for number in range(1, seats_per_row + 1)]
