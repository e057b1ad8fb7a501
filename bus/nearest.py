"""The known name that was probably meant by an unknown one: what most errors about a name end with."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["nearest", "several_nearest"]

_LIKE = 0.6
"""How like a name must be, by difflib's ratio: below that it is another name, and no slip."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one that is most like it; None where none is like it."""
    return next(iter(_close(name, known, 1, _LIKE)), None)


def several_nearest(name: str, known: Iterable[str], most: int) -> list[str]:
    """Up to `most` that are like it, or begin with it and go on: a name is often remembered by its beginning only."""
    names = list(known)
    begin_so = [one for one in names if name and one.startswith(name)]
    found = {*_close(name, names, most, _LIKE), *_close(name, begin_so, most, 0.0)}
    return _close(name, sorted(found), most, 0.0)  # the likest first


def _close(name: str, known: Iterable[str], most: int, cutoff: float) -> list[str]:
    import difflib  # noqa: PLC0415 - only a wrong name needs it, and every command starts without

    return difflib.get_close_matches(name, list(known), n=most, cutoff=cutoff)
