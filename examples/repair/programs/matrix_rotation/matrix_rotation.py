"""Turning rectangular tables: transpose and quarter turns."""

from __future__ import annotations

Matrix = list[list[int]]


def transpose(matrix: Matrix) -> Matrix:
    """Return `matrix` with rows and columns exchanged."""
    return [list(column) for column in zip(*matrix, strict=True)]


def rotate_clockwise(matrix: Matrix) -> Matrix:
    """Return `matrix` turned by a quarter to the right: its first row becomes the last column."""
    return transpose(matrix)[::-1]


def rotate(matrix: Matrix, quarter_turns: int) -> Matrix:
    """Return `matrix` after quarter turns to the right; negative numbers turn to the left."""
    turned = [list(row) for row in matrix]
    for _ in range(quarter_turns % 4):
        turned = rotate_clockwise(turned)
    return turned
