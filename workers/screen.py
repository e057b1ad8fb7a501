"""The screen on which results appear. Whoever reads it may leave early, and that says nothing of the batch."""

from __future__ import annotations

import os
import sys

from rich.console import Console

__all__ = ["Screen"]


class Screen(Console):
    """A console without decoration of its own."""

    def __init__(self) -> None:
        """On standard output."""
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        """Go on silently. The console's own way is to exit with 1, which here would read "the gate failed"."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # also for the flush at the very end
