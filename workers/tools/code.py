"""The code that the tools of a suite need: their functions, and the MCP client."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from bus.errors import InputError
from workers import usercode

if TYPE_CHECKING:
    from workers.declaration import Suite

__all__ = ["functions_of"]


def functions_of(suite: Suite) -> dict[str, Callable[..., object]]:
    """Import the functions that tools of the suite are, and what else its tools need.

    Raises `InputError` for code that does not import.
    """
    found: dict[str, Callable[..., object]] = {}
    for name, tool in suite.tools.items():
        if tool.mcp is not None:
            _require_mcp(f"tools.{name}")
        if tool.python is None:
            continue
        try:
            found[name] = usercode.load_function(tool.python, suite.root)
        except usercode.UserCodeError as error:
            line = f" (line {error.line})" if error.line is not None else ""
            raise InputError(f"tools.{name}.python: {error.problem}{line}", file=suite.source) from error
    return found


def _require_mcp(field: str) -> None:
    try:
        import mcp  # noqa: F401, PLC0415 - an optional dependency
    except ImportError:
        raise InputError(f"{field}: the MCP client is not installed", remedy="pip install 'evalbus[mcp]'") from None
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # what goes wrong is said in the call's own result
