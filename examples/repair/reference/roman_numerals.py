"""Roman numerals: reading and writing the numbers from 1 to 3999."""

from __future__ import annotations

SYMBOLS: list[tuple[int, str]] = [
    (1000, "M"),
    (900, "CM"),
    (500, "D"),
    (400, "CD"),
    (100, "C"),
    (90, "XC"),
    (50, "L"),
    (40, "XL"),
    (10, "X"),
    (9, "IX"),
    (5, "V"),
    (4, "IV"),
    (1, "I"),
]
VALUES: dict[str, int] = {symbol: value for value, symbol in SYMBOLS if len(symbol) == 1}


def to_roman(number: int) -> str:
    """Write `number` in standard form. Raises ValueError outside 1 to 3999."""
    if not 1 <= number <= 3999:
        raise ValueError(f"{number} has no Roman numeral")
    parts: list[str] = []
    for value, symbol in SYMBOLS:
        count, number = divmod(number, value)
        parts.append(symbol * count)
    return "".join(parts)


def from_roman(text: str) -> int:
    """Read a numeral: a symbol that stands before a larger one is subtracted."""
    values = [VALUES[letter] for letter in text.upper()]
    total = 0
    for position, value in enumerate(values):
        following = values[position + 1] if position + 1 < len(values) else 0
        total += -value if value < following else value
    return total
