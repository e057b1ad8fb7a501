"""Tools that are functions of the suite."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from workers.tools.text import as_text
from workers.tools.values import Answer, NothingDoneError, Order, SilenceError
from workers.usercode import UserCodeError, call_apart

__all__ = ["FunctionTool"]


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A function, async or plain; the arguments are its keywords.

    One that returns has done what it does. One that raises leaves that open, unless it raises `NothingDoneError`, or
    could not be called with these arguments at all.
    """

    function: Callable[..., object]

    async def run(self, order: Order) -> Answer:
        """Make the call. Raises `SilenceError`."""
        if (problem := self._misfit(order)) is not None:
            return Answer(False, problem)
        given = {**order.args, "context": order.context} if _takes_context(self.function) else order.args
        try:
            value = await call_apart(functools.partial(self.function, **given))
        except UserCodeError as error:
            if isinstance(error.__cause__, NothingDoneError):
                return Answer(False, as_text(str(error.__cause__)) or "nothing was done")
            raise SilenceError(error.problem) from error
        return Answer(True, as_text(value), order.context.key)

    def _misfit(self, order: Order) -> str | None:
        if "context" in order.args and _takes_context(self.function):
            return "an argument cannot be named context"
        extra = {"context": None} if _takes_context(self.function) else {}
        try:
            _signature(self.function).bind(**order.args, **extra)
        except TypeError as error:
            return f"it cannot be called so: {error}"
        except ValueError:  # a built-in that does not tell its signature
            pass
        return None


# Reading a signature takes longer than most of a call's other work does.
_signature = functools.cache(inspect.signature)


@functools.cache
def _takes_context(function: Callable[..., object]) -> bool:
    try:
        named = _signature(function).parameters.get("context")
    except (TypeError, ValueError):
        return False
    return named is not None and named.kind in (named.POSITIONAL_OR_KEYWORD, named.KEYWORD_ONLY)
