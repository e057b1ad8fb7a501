"""What a terminal can do, by TERM, and what its user wants of it, by NO_COLOR (https://no-color.org)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["can_redraw", "colors_for", "console_on"]

_INCAPABLE = ("", "dumb", "unknown")


def can_redraw(stream: TextIO) -> bool:
    """Whether it is a terminal whose cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in _INCAPABLE


def colors_for(stream: TextIO) -> Literal["auto"] | None:
    """As rich has it. None: no codes at all; with NO_COLOR alone, rich would go on to write bold and dim.

    What is no terminal stays rich's to judge, which knows the FORCE_COLOR of CI servers.
    """
    return None if os.environ.get("NO_COLOR") or (stream.isatty() and not can_redraw(stream)) else "auto"


def console_on(stream: TextIO) -> Console:
    """What draws on it."""
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it

    return Console(file=stream, highlight=False, color_system=colors_for(stream))
