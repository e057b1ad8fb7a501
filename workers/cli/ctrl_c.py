"""Ctrl-C while Python still imports the command line: one word less than a traceback, and exit code 130.

Importing this module comes first there. Once all is loaded, each command says for itself what an interruption means.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType

__all__ = ["over"]


def _quietly(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    sys.stderr.flush()
    os._exit(130)


def over() -> None:
    """All is loaded."""
    if sys.excepthook is _quietly:
        sys.excepthook = sys.__excepthook__


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = _quietly
