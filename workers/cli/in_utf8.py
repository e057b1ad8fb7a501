"""UTF-8, whatever the locale says, as Python has it by itself from 3.15 on.

Under a locale that is not UTF-8, a suite in `Käse/` could not be opened, its server's socket not be found, and a
picture of lines not be printed. Reading each of these in another way would be a hundred places; a new start is one.
"""

from __future__ import annotations

import io
import os
import sys

__all__ = ["ensure"]


def ensure() -> None:
    """Start anew in UTF-8 where this interpreter has another encoding; what it cannot print after that is a `?`."""
    if sys.getfilesystemencoding().lower() != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"  # the roles are started with it, too
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":  # by PYTHONIOENCODING
            stream.reconfigure(errors="replace")
