"""Roman numerals: reading and writing the numbers from 1 to 3999."""

from __future__ import annotations

SYMBOLS: dict[str, int] = {
    "M": 1000,
    "CM": 900,
    "D": 500,
    "CD": 400,
    "C": 100,
    "XC": 90,
    "L": 50,
    "XL": 40,
    "X": 10,
    "IX": 9,
    "V": 5,
    "IV": 4,
    "I": 1,
}


def to_roman(number: int) -> str:
    """Write `number` in standard form. Raises ValueError outside 1 to 3999."""
    if not 1 <= number <= 3999:
        raise ValueError(f"{number} has no Roman numeral")
    parts: list[str] = []
    for symbol, value in SYMBOLS.items():
        count, number = divmod(number, value)
        parts.append(symbol * count)
    return "".join(parts)


def from_roman(text: str) -> int:
    """Read a numeral: a symbol that stands before a larger one is subtracted."""
    values = [SYMBOLS[letter] for letter in text.upper()]
    total = 0
    for position, value in enumerate(values):
        following = values[position + 1] if position + 1 < len(values) else 0
        total += -value if value <= following else value
    return total
