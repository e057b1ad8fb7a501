"""Tools that are functions of the suite."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

from workers.tools.text import as_text
from workers.tools.values import Answer, NothingDoneError, Order, SilenceError
from workers.usercode import UserCodeError, call_apart

__all__ = ["FunctionTool"]


class FunctionTool:
    """A function, async or plain; the arguments are its keywords.

    One that returns has done what it does. One that raises leaves that open, unless it raises `NothingDoneError`, or
    could not be called with these arguments at all.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        """Reads its signature here, once: that takes longer than most of a call's other work does."""
        self._function = function
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):  # a built-in that does not tell it
            self._signature = None
        named = None if self._signature is None else self._signature.parameters.get("context")
        self._takes_context = named is not None and named.kind in (named.POSITIONAL_OR_KEYWORD, named.KEYWORD_ONLY)

    async def run(self, order: Order) -> Answer:
        """Make the call. Raises `SilenceError`."""
        if (problem := self._misfit(order)) is not None:
            return Answer(False, problem)
        given = {**order.args, "context": order.context} if self._takes_context else order.args
        try:
            value = await call_apart(functools.partial(self._function, **given))
        except UserCodeError as error:
            if isinstance(error.__cause__, NothingDoneError):
                return Answer(False, as_text(str(error.__cause__)) or "nothing was done")
            raise SilenceError(error.problem) from error
        return Answer(True, as_text(value), order.context.key)

    def _misfit(self, order: Order) -> str | None:
        if "context" in order.args and self._takes_context:
            return "an argument cannot be named context"
        extra = {"context": None} if self._takes_context else {}
        try:
            if self._signature is not None:
                self._signature.bind(**order.args, **extra)
        except TypeError as error:
            return f"it cannot be called so: {error}"
        return None
