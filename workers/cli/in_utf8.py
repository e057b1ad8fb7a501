"""UTF-8, whatever the locale says, as Python has it by itself from 3.15 on.

Under a locale that is not UTF-8, a suite in `Käse/` could not be opened, its server's socket not be found, and a
picture of lines not be printed. Reading each of these in another way would be a hundred places; a new start is one.

A command may also be started without standard output or error (`2>&-`, some init systems). Then Python has None in its
place, and the next file that is opened gets its number: what a library prints would be written into it.
"""

from __future__ import annotations

import codecs
import io
import os
import sys

__all__ = ["ensure"]

_TYPED = str.maketrans(
    {"·": "|", "…": "...", "→": "->", "✗": "x", "█": "#", "▓": "%", "▒": "=", "░": ".", "▚": "x"}
    | {chr(0x2581 + height): str(1 + height) for height in range(7)}  # of a bar, in eighths
)
"""Marks of our own screens, where the encoding has none of them: `pass 2 ? fail 1` would be a question."""


def ensure() -> None:
    """Start anew in UTF-8 where this interpreter has another encoding; what it cannot print after that is typed.

    Standard streams that are closed lead nowhere from then on.
    """
    _open_what_is_closed()
    if sys.getfilesystemencoding().lower() != "utf-8" and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"  # the roles are started with it, too
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
    codecs.register_error("evalbus.typed", _typed)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # another encoding, by PYTHONIOENCODING; half a surrogate pair, in any
            stream.reconfigure(errors="evalbus.typed")


def _typed(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError), "nothing else is done with what is printed"
    typed = error.object[error.start : error.end].translate(_TYPED)
    return "".join(each if each.isascii() else "?" for each in typed), error.end


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
