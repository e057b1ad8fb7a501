"""Several questions at once, for whose answers nothing but the server is waited for: one round trip instead of many."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

__all__ = ["all_of"]

T = TypeVar("T")

_MOST: Final = 100
"""At a time: a thousandfold question would keep everybody else on the connection waiting, and its tasks in memory."""


async def all_of(asked: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """What each comes to, in their order. Raises the first error, when all that was begun has ended."""
    if len(asked) == 1:  # the usual case, without a task
        return [await asked[0]]
    said: list[T] = []
    begun = 0
    try:
        while begun < len(asked):
            piece = [asyncio.ensure_future(one) for one in asked[begun : begun + _MOST]]
            begun += len(piece)
            await asyncio.gather(*piece, return_exceptions=True)
            said += [one.result() for one in piece]  # raises what was raised: an error may also be an answer
    finally:
        for unasked in asked[begun:]:
            unasked.close()
    return said
