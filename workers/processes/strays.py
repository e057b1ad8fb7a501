"""Processes that the suite's Python started and left running: ended when the role ends, and when the run does.

A command of the suite belongs to a nursery, which ends all of it. The solver's own `subprocess.Popen` does not: with a
session of its own the child outlives the worker's group, and would go on for days, on what nobody pays attention to.

| what is left                                   | who ends it                                                  |
|------------------------------------------------|--------------------------------------------------------------|
| a child of a role that ends                    | the role, last of all                                        |
| a child of a role that was killed              | the starter, `evalbus run`, to which the kernel hands it     |
| one whose own parent has exited (a daemon)     | the starter; it may be in use, so not before the run's end   |
| the keeper of the embedded server              | nobody: it is shared, and knows itself when it has to go     |

A role adopts orphans only at its very end: one that did so all along would have to reap them, and could not tell them
from children that the solver is about to wait for. The starter runs none of the suite's code, so it can, and does.
Linux only: elsewhere the system does not tell who is whose child, and nothing is ended.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from bus import keeper
from workers.processes import nursery

__all__ = ["Strays"]

_PATIENCE: Final = 5.0
"""Seconds for killed processes to go; one that hangs in the kernel (a dead network disk) is left to it."""


class Strays:
    """What is below this process and was not when this object was made."""

    def __init__(self) -> None:
        """Remembers who is there already."""
        self._there = frozenset(nursery.children())
        self._seen: frozenset[int] = frozenset()

    def reap(self, own: Collection[int]) -> None:
        """Let orphans that have ended go; `own` are children that somebody else waits for. To be called repeatedly.

        Only those that an earlier call has seen: one that was started this very moment may not be in `own` yet.
        """
        found = frozenset(nursery.children()) - self._there - frozenset(own)
        for pid in found & self._seen:
            _reap(pid)
        self._seen = found

    def kill(self) -> None:
        """Kill what is left, whole trees, and wait until it is gone."""
        nursery.adopt_orphans()  # the children of what is killed come to us, and are next
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            left = [pid for pid in nursery.children() if pid not in self._there and not _is_keeper(pid)]
            if not left:
                return
            for pid in left:
                nursery.kill(pid)
                _reap(pid)
            time.sleep(0.005)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _is_keeper(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return os.fsencode(keeper.__file__) in words
