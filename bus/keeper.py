"""The keeper: the small process that owns the embedded server, so that it never outlives its last user.

A user may be killed at any instant, so no user can be trusted to stop the server, and no file that says "in
use" can be trusted afterwards. Locks can: the kernel drops a flock with the last process that holds it,
however that one died. Liveness rests on four lock files in the server's directory; no process id is ever read
from a file.

    file         held by                                 means
    start.lock   whoever starts or ends the server       decisions are made one at a time
    users.lock   every user, shared                      the server is wanted
    keeper.lock  the keeper                              the server is looked after
    data.lock    the keeper, and the server (inherited)  the append-only file has its one writer

What dies, and what follows:

    a user         its share of users.lock is gone; the keeper gets the lock once nobody else has a share
    the last user  the keeper ends the server, unless the file `pinned` is there. It holds start.lock while
                   it does, so one who comes just now waits, and starts anew on data that are complete
    the server     the keeper ends; the next user finds keeper.lock free and starts a new pair on the data
    the keeper     the kernel kills the server with it (Linux); until it is dead data.lock keeps others off
    the directory  deleted or moved, or its socket deleted: nobody can find the server any more; it is ended

Run by its path, `python -I -S keeper.py DIRECTORY SOCKET BINARY`, and with nothing but a little of the
standard library: it is a third of the time that a start takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import sys
import time
from pathlib import Path

__all__ = ["BUSY", "CONFIG", "DATA_LOCK", "KEEPER_LOCK", "PIN", "START_LOCK", "USERS_LOCK", "lock", "names"]

START_LOCK, USERS_LOCK, KEEPER_LOCK, DATA_LOCK = "start.lock", "users.lock", "keeper.lock", "data.lock"
PIN = "pinned"
CONFIG = "server.conf"

BUSY = 75
"""Exit status: another keeper, or a server that lost its own, holds the data."""

_POLL = 0.1  # seconds between looks at the locks: so long a server may outlive its last user
_BINDING = 60.0
"""Seconds for a server to make its socket, which it does before it loads anything. One that cannot ends by itself: this
only ends one whose socket was removed before it was ever seen, and is long, for a busy machine takes its time."""
_TAKEOVER = 10.0  # seconds to wait for a dying predecessor to let go of the data
_FLUSH = 10.0  # seconds for the server to end by itself; killing it then loses nothing that it had answered
_PR_SET_PDEATHSIG = 1  # from <linux/prctl.h>


def lock(path: Path, *, exclusive: bool, patience: float) -> int | None:
    """Take a lock, which the descriptor holds until closed. None when others kept it for `patience` seconds.

    Programs that this process starts do not inherit it; a plain `os.fork` shares it.
    """
    how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB
    deadline = time.monotonic() + patience
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how)
        except BlockingIOError:
            os.close(fd)
            if time.monotonic() >= deadline:
                return None
            time.sleep(0.002)
            continue
        except BaseException:
            os.close(fd)
            raise
        if names(path, fd):
            return fd
        os.close(fd)  # the file was deleted between opening and locking: this lock would bind nobody


def names(path: Path, fd: int) -> bool:
    """True while `path` still names the very file that `fd` has open."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


class Keeper:
    """The parent of one server process."""

    def __init__(self, directory: Path, socket: Path, keeper_fd: int, data_fd: int) -> None:
        """`keeper_fd` and `data_fd` hold the two locks; the server inherits the second."""
        self._directory, self._socket = directory, socket
        self._keeper_fd, self._data_fd = keeper_fd, data_fd
        self._bound = False
        self._bound_by = time.monotonic() + _BINDING
        self._told_to_stop = False

    def run(self, binary: Path) -> None:
        """Start the server, stay with it, end it in time. Returns when it is gone."""
        wakeups, wakeup = os.pipe()
        os.set_blocking(wakeups, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # any handler will do: it wakes the wait below
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # those of a terminal are meant for the users
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

        server = self._spawn(binary)
        while not _ended(server):
            if self._told_to_stop or self._lost() or self._unused():
                self._end(server)
                break
            select.select([wakeups], [], [], _POLL if self._bound else _POLL / 10)
            with contextlib.suppress(BlockingIOError):
                os.read(wakeups, 512)
        if names(self._directory / KEEPER_LOCK, self._keeper_fd):  # else the place belongs to another by now
            self._socket.unlink(missing_ok=True)
            if self._socket.parent != self._directory:
                with contextlib.suppress(OSError):
                    self._socket.parent.rmdir()

    def _stop(self, *_: object) -> None:
        self._told_to_stop = True

    def _spawn(self, binary: Path) -> int:
        libc = ctypes.CDLL(None)
        keeper = os.getpid()
        server = os.fork()
        if server:
            return server
        try:
            if sys.platform == "linux":
                libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == keeper:  # else it died before that took effect: nobody would end this server
                os.set_inheritable(self._data_fd, True)
                os.execv(binary, [str(binary), CONFIG])  # noqa: S606 - there is nothing to quote
        except OSError as error:
            os.write(2, f"{binary}: {error.strerror}\n".encode(errors="replace"))
        finally:
            os._exit(127)

    def _lost(self) -> bool:
        """Nobody can find this server any more."""
        there = self._socket.exists()
        self._bound = self._bound or there or time.monotonic() > self._bound_by
        return (self._bound and not there) or not names(self._directory / KEEPER_LOCK, self._keeper_fd)

    def _unused(self) -> bool:
        """No user is left. If so, start.lock and users.lock stay taken until this process is gone."""
        try:
            start = lock(self._directory / START_LOCK, exclusive=True, patience=0)
            if start is None:  # somebody is deciding right now
                return False
            if not (self._directory / PIN).exists():
                users = lock(self._directory / USERS_LOCK, exclusive=True, patience=0)
                if users is not None:
                    return True
            os.close(start)
        except FileNotFoundError:  # the directory is being deleted; `_lost` will say so
            return False
        return False

    def _end(self, server: int) -> None:
        os.kill(server, signal.SIGTERM)
        deadline = time.monotonic() + _FLUSH
        while not _ended(server):
            if time.monotonic() > deadline:
                os.kill(server, signal.SIGKILL)
                os.waitpid(server, 0)
                return
            time.sleep(0.005)


def _ended(child: int) -> bool:
    pid, _status = os.waitpid(child, os.WNOHANG)
    return pid == child


def main(directory: Path, socket: Path, binary: Path) -> int:
    """Take the locks and go on in the background: the starter has its answer once they are held."""
    os.chdir(directory)
    keeper_fd = lock(directory / KEEPER_LOCK, exclusive=True, patience=_TAKEOVER)
    data_fd = None if keeper_fd is None else lock(directory / DATA_LOCK, exclusive=True, patience=_TAKEOVER)
    if keeper_fd is None or data_fd is None:
        return BUSY
    if os.fork():  # a lock belongs to the open file, which the child shares: there is no moment without it
        return 0
    Keeper(directory, socket, keeper_fd, data_fd).run(binary)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
