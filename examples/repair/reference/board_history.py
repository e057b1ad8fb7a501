"""A game board that can take moves back."""

from __future__ import annotations


class Board:
    """A square board; `undo` restores the cells as they were before the last move."""

    def __init__(self, size: int = 3) -> None:
        """Start with an empty board of `size` rows and columns."""
        self.cells: list[list[str]] = [["."] * size for _ in range(size)]
        self._history: list[list[list[str]]] = []

    def play(self, row: int, column: int, mark: str) -> None:
        """Put `mark` on a free cell. Raises ValueError, and changes nothing, if the cell is taken."""
        if self.cells[row][column] != ".":
            raise ValueError(f"cell {row}, {column} is taken")
        self._history.append([list(line) for line in self.cells])
        self.cells[row][column] = mark

    def undo(self) -> bool:
        """Take the last move back; return False if there is none."""
        if not self._history:
            return False
        self.cells = self._history.pop()
        return True

    def lines(self) -> list[str]:
        """Return the rows as text."""
        return ["".join(row) for row in self.cells]
