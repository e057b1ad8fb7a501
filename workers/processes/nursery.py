"""The process that starts the commands of one worker, and leaves none of them behind.

A worker runs other people's code and may itself be killed at any instant. Started by the worker directly, a
command would outlive a `kill -9` of it, with whatever the command has started; and setting limits between
fork and exec is not safe in a process that has threads. So each worker has a nursery: a small process with
one thread that forks, limits, reaps and kills on its behalf.

              control (a socket pair): one request a command, with four descriptors
    worker ────────────────────────────────────────────▶ nursery ──fork──▶ command (own session)
       └──────── status (a socket pair a command) ◀────────┘

A command lives as long as the worker's end of its status socket can still send:

| what happens                     | the nursery                                                  |
|----------------------------------|--------------------------------------------------------------|
| the command exits                | kills the rest of its group, reaps it, answers how it ended  |
| the worker ends its sending side | kills the group; then as above                               |
| the worker is killed             | kills all groups and what escaped from them, exits           |
| the nursery itself is killed     | the kernel kills the commands (Linux), not their children    |

The group is killed before its leader is reaped, while the number cannot belong to anyone else. What left the
group (`setsid`) comes back to the nursery as an orphan (Linux) and is killed once no command is running.

Run as a script, isolated from the suite and from this package: standard library only. `request` and `answer`
are JSON; a request has the keys of `Request`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import resource
import selectors
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import NoReturn, TypedDict

__all__ = ["Answer", "Request", "adopt_orphans", "children", "kill", "main", "read_request", "send_request"]

try:
    import ctypes
except ImportError:  # a Python without libffi: then the kernel's two services below are missed
    ctypes = None  # type: ignore[assignment]

_LENGTH = struct.Struct("!I")
_FDS = 4
_OF_THE_MACHINE = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC, errno.ESTALE)
"""Why a command is not started that has nothing to do with it. ENOMEM may be the suite's own limit."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Request(TypedDict):
    """One command. `cpu` in seconds, `memory` and `file` in bytes, `processes` beside those there are."""

    argv: list[str]
    cwd: str
    env: dict[str, str]
    cpu: float
    memory: int
    processes: int
    file: int
    open_files: int


class Answer(TypedDict, total=False):
    """How a command ended: `exit` (negative: by that signal), or `failed`: why it could not be started.

    `machine` beside it: that was this machine's doing, and no word about the command.
    """

    exit: int
    failed: str
    machine: bool


def send_request(control: socket.socket, request: Request, fds: list[int]) -> None:
    """Ask for a command; `fds` are its standard input, output, error, and the nursery's end of `status`."""
    body = json.dumps(request).encode()
    socket.send_fds(control, [_LENGTH.pack(len(body))], fds)
    control.sendall(body)


def read_request(control: socket.socket) -> tuple[Request, list[int]] | None:
    """The next request with its descriptors; None when the worker is gone."""
    head, fds, _, _ = socket.recv_fds(control, _LENGTH.size, _FDS)
    for fd in fds:
        os.set_inheritable(fd, False)
    if len(head) < _LENGTH.size or len(fds) < _FDS:
        return None
    body = bytearray()
    (size,) = _LENGTH.unpack(head)
    while len(body) < size:
        piece = control.recv(size - len(body))
        if not piece:
            return None
        body += piece
    request: Request = json.loads(body)
    return request, fds


class Nursery:
    """The commands that are running: process id to the socket that waits for the answer."""

    def __init__(self, control: socket.socket) -> None:
        """`control` is the socket on which the worker asks."""
        self.control = control
        self.running: dict[int, socket.socket] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until the worker is gone."""
        wake, woken = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self.selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.control:
                    asked = read_request(self.control)
                    if asked is None:
                        self.clear()
                        return
                    self.start(*asked)
                elif key.fileobj is woken:
                    woken.recv(4096)
                    self.reap()
                elif key.data in self.running:  # not one that was reaped a moment ago, in this very loop
                    # All that a worker ever sends on a status socket is its end.
                    self.selector.unregister(key.fileobj)
                    kill(key.data)

    def start(self, request: Request, fds: list[int]) -> None:
        """Fork and exec. What fails is answered by the child, on the command's own socket."""
        status = socket.socket(fileno=fds.pop())
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # no memory, no more processes
            with status:
                _answer(status, {"failed": error.strerror or repr(error), "machine": True})
            for fd in fds:
                os.close(fd)
            return
        if pid == 0:
            _become(request, fds, status, parent)
        for fd in fds:
            os.close(fd)
        self.running[pid] = status
        self.selector.register(status, selectors.EVENT_READ, pid)

    def reap(self) -> None:
        """Answer for every child that has ended."""
        with contextlib.suppress(ChildProcessError):
            while (ended := _next_end()) is not None:
                pid, code = ended
                status = self.running.pop(pid, None)
                if status is None:
                    continue
                with contextlib.suppress(KeyError):
                    self.selector.unregister(status)
                with status:
                    _answer(status, {"exit": code})
        if not self.running:
            for orphan in children():
                kill(orphan)

    def clear(self) -> None:
        """Kill all, orphans too, and wait for them."""
        with contextlib.suppress(ChildProcessError):
            while doomed := {*self.running, *children()}:
                for pid in doomed:
                    kill(pid)
                pid, _ = os.waitpid(-1, 0)
                self.running.pop(pid, None)


def _become(request: Request, fds: list[int], status: socket.socket, parent: int) -> NoReturn:
    """In the child: turn into the command."""
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(127)
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(request["cwd"])
        _limit(request)
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - no shell is the point
    except BaseException as error:  # whatever it is: two processes may not go on from here
        what = error.strerror if isinstance(error, OSError) and error.strerror else repr(error)
        ours = isinstance(error, OSError) and error.errno in _OF_THE_MACHINE
        _answer(status, {"failed": what, "machine": True} if ours else {"failed": what})
    os._exit(127)


def _answer(status: socket.socket, answer: Answer) -> None:
    with contextlib.suppress(OSError):
        status.sendall(json.dumps(answer).encode() + b"\n")


def _limit(request: Request) -> None:
    cpu = math.ceil(request["cpu"])
    _set_limit(resource.RLIMIT_CORE, 0, 0)
    # The soft limit sends SIGXCPU, which a program may catch; a second later the hard one kills.
    _set_limit(resource.RLIMIT_CPU, cpu, cpu + 1)
    _set_limit(resource.RLIMIT_FSIZE, request["file"], request["file"])
    _set_limit(resource.RLIMIT_NOFILE, request["open_files"], request["open_files"])
    if sys.platform != "linux":
        return  # macOS has no limit on address space, and counts processes in its own way
    _set_limit(resource.RLIMIT_AS, request["memory"], request["memory"])
    if os.geteuid() != 0:  # the kernel exempts root
        most = _tasks_of_user() + request["processes"]
        _set_limit(resource.RLIMIT_NPROC, most, most)


def _set_limit(which: int, soft: int, hard: int) -> None:
    """Lower a limit; one that is already lower stays."""
    _, top = resource.getrlimit(which)
    if top != resource.RLIM_INFINITY:
        soft, hard = min(soft, top), min(hard, top)
    resource.setrlimit(which, (soft, hard))


def _tasks_of_user() -> int:
    """Threads of all the user's processes: the number that the kernel compares its limit with.

    The limit is the user's, not the command's: without this sum, a limit of 64 stops every fork of somebody
    who has a browser open.
    """
    uid, count = os.getuid(), 0
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and process.stat().st_uid == uid:
                count += len(list((process / "task").iterdir()))
    return count


def _next_end() -> tuple[int, int] | None:
    """A child that has ended, its group killed, then reaped; None when there is none now."""
    if hasattr(os, "waitid"):
        seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        kill(seen.si_pid)
        pid, status = os.waitpid(seen.si_pid, 0)
    else:  # macOS before Python 3.13: kill after the reaping
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return None
        kill(pid)
    return pid, os.waitstatus_to_exitcode(status)


def kill(pid: int) -> None:
    """Kill a process and its group; no matter if it is gone."""
    # Its group, and itself: it may not have made its group yet.
    for send in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            send(pid, signal.SIGKILL)


def children() -> list[int]:
    """Children of this process, those that have ended and were not reaped too, as far as the system tells."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():  # the kernel keeps a list for each
            with contextlib.suppress(OSError):  # it has just ended, and its children are another's
                found += map(int, (thread / "children").read_text().split())
    return found


def adopt_orphans() -> None:
    """From now on whatever loses its parent below this process becomes its child, and not that of process 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    """A service of the Linux kernel; elsewhere, and where it is refused, done without."""
    if ctypes is not None and sys.platform == "linux":
        _LIBC.prctl(option, value, 0, 0, 0)


_LIBC = ctypes.CDLL(None) if ctypes is not None else None


def main() -> None:
    """Serve the worker on standard input."""
    # Only the worker's end is the end: a signal to the whole service must not kill commands first, or the
    # worker, told to stop, would take their death for an answer.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    adopt_orphans()
    Nursery(socket.socket(fileno=os.dup(0))).serve()


if __name__ == "__main__":
    main()
