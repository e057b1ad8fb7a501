"""A child process that ends with its parent, also when the parent is killed."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

__all__ = ["die_with_parent"]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """To be called in the child before it becomes another program. Does nothing but on Linux."""
    if sys.platform != "linux":
        return lambda: None
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it died between the fork and here: no signal will come any more
            os._exit(128 + int(number))

    return arrange
