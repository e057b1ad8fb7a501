"""Lengths of months in the Gregorian calendar."""

from __future__ import annotations

LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
FEBRUARY = 2


def is_leap(year: int) -> bool:
    """Tell whether `year` has a 29 February: every fourth, save centuries not divisible by 400."""
    if year % 100 == 0:
        return year % 400 == 0
    return year % 4 == 0


def days_in_month(year: int, month: int) -> int:
    """Return the number of days of a month, counted from 1 for January."""
    if not 1 <= month <= 12:
        raise ValueError(f"there is no month {month}")
    if month == FEBRUARY and is_leap(year):
        return 29
    return LENGTHS[month - 1]


def day_of_year(year: int, month: int, day: int) -> int:
    """Return the place of a day in its year; 1 January is 1."""
    if not 1 <= day <= days_in_month(year, month):
        raise ValueError(f"there is no {year}-{month:02d}-{day:02d}")
    return sum(days_in_month(year, earlier) for earlier in range(1, month)) + day
