"""Address labels for a mailing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Address:
    """A postal address in the country of the sender, or abroad when `country` is given."""

    name: str
    street: str
    town: str
    postcode: str
    country: str | None = None


def label(address: Address) -> str:
    """Return the lines of the label: town and postcode in capitals, and the country when there is one."""
    lines = [address.name, address.street, address.town.upper(), address.postcode.upper()]
    if address.country is not None:
        lines.append(address.country.upper())
    return "\n".join(lines)


def longest_line(address: Address) -> int:
    """Return how many characters wide the label must be."""
    return max(len(line) for line in label(address).splitlines())
