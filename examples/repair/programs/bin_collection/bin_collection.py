"""When the council empties the bins of a street."""

from __future__ import annotations

from datetime import date, timedelta

DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def next_collection(today: date, day_name: str) -> date:
    """Return the next day of that name, which is `today` itself when the name fits."""
    if day_name not in DAY_NAMES:
        raise ValueError(f"{day_name!r} is not a day of the week")
    ahead = (DAY_NAMES.index(day_name) - today.isoweekday()) % 7
    return today + timedelta(days=ahead)


def reminder(today: date, day_name: str) -> str:
    """Return what the leaflet says, such as `Friday, in 2 days`."""
    days = (next_collection(today, day_name) - today).days
    if days == 0:
        return f"{day_name}, today"
    return f"{day_name}, tomorrow" if days == 1 else f"{day_name}, in {days} days"
