"""The screen on which results appear. Whoever reads it may leave early, and that says nothing of the batch."""

from __future__ import annotations

import os
import sys
from typing import Any

from rich.console import Console

from bus.errors import InputError
from workers.terminals import colors_for

__all__ = ["Screen"]


class Screen(Console):
    """A console without decoration of its own."""

    def __init__(self) -> None:
        """On standard output."""
        super().__init__(highlight=False, color_system=colors_for(sys.stdout))

    def on_broken_pipe(self) -> None:
        """Go on silently. The console's own way is to exit with 1, which here would read "the gate failed"."""
        self._drop()

    def print(self, *objects: Any, **how: Any) -> None:  # noqa: ANN401 - the console's own
        """As the console's, a line as long as it is. Raises InputError when it cannot be written, as on a full disk."""
        try:
            super().print(*objects, **{"soft_wrap": True, **how})
        except OSError as error:
            self._drop()
            raise InputError(f"standard output cannot be written: {error.strerror}") from error

    def _drop(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # also for the flush at the very end
