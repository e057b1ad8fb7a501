"""Directories of attempts whose process was killed: nobody else knows that they are no longer needed.

    <consumer>/<batch>/<run>/<generation>      below the directory of work of an EVALBUS_HOME

Each worker and scorer looks for them when it starts. It takes away what carries its own name, which is that of the
process whose place it has taken, and what names this host and a process that is gone. What another host has left on a
shared disk is that host's to judge.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import structlog

from bus.types import ConsumerId
from workers.naming import this_host
from workers.trees import remove_tree

__all__ = ["clear_leftovers"]

log = structlog.get_logger("evalbus.leftovers")

_DOOMED: Final = ".gone-"
"""What begins the name of a directory that is being removed. No consumer's does."""


def clear_leftovers(top: Path, own: ConsumerId) -> threading.Thread:
    """Remove what dead processes have left in `top`, in a thread of its own. Never raises; what fails stays there.

    When this returns, nothing is there under the name `own`: what its new process makes there is not removed.
    """
    with contextlib.suppress(OSError):  # mostly, there is none
        (top / own).rename(top / f"{_DOOMED}{own}-{secrets.token_hex(4)}")
    thread = threading.Thread(target=_clear, args=(top,), name="leftovers", daemon=True)
    thread.start()
    return thread


def _clear(top: Path) -> None:
    for folder in _left(top):
        try:
            remove_tree(folder)
        except OSError as error:  # another process may be removing it, too
            log.info("leftovers.stay", folder=str(folder), why=str(error))


def _left(top: Path) -> Iterator[Path]:
    named = re.compile(rf"(?:worker|scorer)-{re.escape(this_host())}-([1-9][0-9]*)-[0-9a-f]+(?:-[0-9]+)?")
    try:
        folders = list(top.iterdir())
    except OSError:
        return
    for folder in folders:
        consumer = named.fullmatch(folder.name)
        if folder.name.startswith(_DOOMED) or (consumer is not None and not _is_alive(int(consumer[1]))):
            yield folder


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it is somebody else's, or no number of a process: not for us to say
        return True
    return True
