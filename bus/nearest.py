"""The known name that was probably meant by an unknown one: what most errors about a name end with."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["nearest", "several_nearest"]

_ROUGHLY = 0.4
"""How like a name must be where several are offered: of three, one may be far off. Of one, difflib's 0.6 is asked."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one that is most like it; None where none is like it."""
    return next(iter(_close(name, known, 1, 0.6)), None)


def several_nearest(name: str, known: Iterable[str], most: int) -> list[str]:
    """Up to `most` that are at all like it, the likest first."""
    return _close(name, known, most, _ROUGHLY)


def _close(name: str, known: Iterable[str], most: int, cutoff: float) -> list[str]:
    import difflib  # noqa: PLC0415 - only a wrong name needs it, and every command starts without

    return difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)
