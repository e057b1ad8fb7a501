"""Inspect as a part of another program: without its screen, its servers, or files of its own."""

from __future__ import annotations

from typing import Final

from inspect_ai.util._display import init_display_type

__all__ = ["IN_MEMORY", "quiet"]

IN_MEMORY: Final = "memory://evalbus-inspect"
"""Where an eval's own log goes, which nobody reads."""


def quiet() -> None:
    """No progress on the screen: the fleet has its own. Inspect has no public way to say so to `eval_async`."""
    init_display_type("none")
