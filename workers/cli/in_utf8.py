"""UTF-8, whatever the locale says, as Python has it by itself from 3.15 on.

Under a locale that is not UTF-8, a suite in `Käse/` could not be opened, its server's socket not be found, and a
picture of lines not be printed. Reading each of these in another way would be a hundred places; a new start is one.

A command may also be started without standard output or error (`2>&-`, some init systems). Then Python has None in its
place, and the next file that is opened gets its number: what a library prints would be written into it.
"""

from __future__ import annotations

import io
import os
import sys

__all__ = ["ensure"]


def ensure() -> None:
    """Start anew in UTF-8 where this interpreter has another encoding; what it cannot print after that is a `?`.

    Standard streams that are closed lead nowhere from then on.
    """
    _open_what_is_closed()
    if sys.getfilesystemencoding().lower() != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"  # the roles are started with it, too
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":  # by PYTHONIOENCODING
            stream.reconfigure(errors="replace")


def _open_what_is_closed() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: those before it are open by now
            os.set_inheritable(nowhere, True)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
