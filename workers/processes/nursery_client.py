"""This process's nursery: started with the first command, ended with the process, whatever ends it."""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
import threading
from typing import Final

from workers.processes import nursery

__all__ = ["CommandError", "close", "start"]

_FAREWELL: Final = 5.0
"""Seconds for the nursery to kill what it runs and go, before it is killed itself (then the kernel does it)."""


class CommandError(Exception):
    """A command that could not be started; `str(error)` is one line."""


def start(request: nursery.Request, fds: list[int]) -> None:
    """Have a command started; `fds` as in `nursery.send_request`, still the caller's to close.

    Raises `CommandError` when no nursery can be reached. How the command ended, and that it could not be
    started, is told on the status socket.
    """
    _NURSERY.start(request, fds)


def close() -> None:
    """Let the nursery go, with all that it runs. One that is needed later is started anew."""
    _NURSERY.close()


class _Client:
    """The one nursery of this process, and of no process that is forked from it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._owner = 0

    def start(self, request: nursery.Request, fds: list[int]) -> None:
        """Ask for a command. Raises `CommandError`."""
        with self._lock:
            for last in (False, True):
                control = self._connect()
                try:
                    nursery.send_request(control, request, fds)
                except OSError as error:
                    # It died: what it did not read, it did not start.
                    self._drop()
                    if last:
                        raise CommandError(f"no command can be started: {error}") from error
                else:
                    return

    def close(self) -> None:
        """Let it go, with all that it runs."""
        with self._lock:
            self._drop()

    def _connect(self) -> socket.socket:
        if self._owner != os.getpid() and self._process is not None:
            self._process.returncode = 0  # forked off: it is our parent's child, not ours
            self._drop()
        if self._process is not None and self._process.poll() is not None:
            self._drop()
        if self._control is None:
            self._control, far = socket.socketpair()
            with far:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", nursery.__file__],
                    stdin=far.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._owner = os.getpid()
        return self._control

    def _drop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(_FAREWELL)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None


_NURSERY: Final = _Client()
atexit.register(_NURSERY.close)
