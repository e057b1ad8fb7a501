"""The embedded server: a private valkey-server that every evalbus in one directory shares.

A user without Redis should need none; and several processes, started in any order and killed at any moment,
must end up on one server with one set of data. Whoever opens a home joins its server or starts it;
`bus.keeper` ends it after its last user. A lock tells whether there is one, its answer whether it works.

    nothing ──open──▶ starting ──answers──▶ up ──last user gone, not pinned──▶ ending ──▶ nothing
                         ▲                  │                                 (an `open` waits
                         └── ensure, open ──┴── killed; the data are on disk   for the end)

Everything here blocks, for about 100 ms when a server has to be started: use `asyncio.to_thread`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

from bus.errors import ServerError, ServerUnreachable
from bus.home import Home, home_directory
from bus.info import Info
from bus.launch import Gone, answer, aof_sizes, await_answer, launch, repairs, why_gone

__all__ = ["EmbeddedServer", "ServerStatus", "home_directory", "start_pinned", "status", "stop", "unix_url"]

_TRIES = 3  # a server that is killed again while it starts is started again, this often
_STOPPING = 15.0  # seconds for `stop` to see the end; the keeper kills a server that takes 10


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What `evalbus server status` tells."""

    running: bool
    """A keeper is there. With `version` None its server does not answer."""
    pid: int | None
    version: str | None
    url: str | None
    in_use: bool
    pinned: bool
    directory: Path
    aof_bytes: int
    """Size of the append-only files."""
    notices: tuple[str, ...] = ()
    """What the start had to repair, if this call started the server."""


class EmbeddedServer:
    """One user's hold on the server of one home. The server stays up while this object is open."""

    def __init__(self, home: Home) -> None:
        """Use `open`."""
        self._home = home
        self._mutex = threading.Lock()  # all who lose their connections at once call `ensure`
        self._share: int | None = None
        self._closed = False
        self._url = ""
        self._run_id = ""
        self._notices: list[str] = []

    @classmethod
    def open(cls, home: Path) -> EmbeddedServer:
        """Join the server of `home`, or start it. Raises InputError or a ServerError."""
        server = cls(Home(home_directory(home)))
        try:
            server._join()
        except BaseException:
            server.close()
            raise
        return server

    @property
    def url(self) -> str:
        """`unix:///…`, the path percent-encoded."""
        return self._url

    def ensure(self) -> bool:
        """Make sure that the server answers; for a client that lost its connection.

        True when it is another server process than the last time: that one died, this one has its data. Raises
        ServerError, once it was left, and ServerUnreachable.
        """
        with self._mutex:
            if self._closed:
                raise ServerError("the embedded server was left already")
            known = self._run_id
            self._join()
            return self._run_id != known

    def notices(self) -> list[str]:
        """What starts by this object had to repair, one line each; each is told once."""
        with self._mutex:
            told, self._notices = self._notices, []
            return told

    def close(self) -> None:
        """Stop being a user. The keeper ends the server if this was the last one."""
        with self._mutex:
            self._closed = True
            if self._share is not None:
                os.close(self._share)
                self._share = None

    def __enter__(self) -> Self:
        """Nothing to do: it is open."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _join(self) -> None:
        up = _bring_up(self._home, self._hold)
        self._url, self._run_id = unix_url(up.socket), up.info["run_id"]
        self._notices += up.notices

    def _hold(self) -> None:
        if self._share is not None and not self._home.joined(self._share):
            os.close(self._share)
            self._share = None
        if self._share is None:
            self._share = self._home.join()


def start_pinned(home: Path) -> ServerStatus:
    """Have the server up, and let it stay without users until `stop`. Raises as `open` does."""
    where = Home(home_directory(home))
    up = _bring_up(where, where.pin.touch)
    return _status(where, up.notices)


def stop(home: Path) -> ServerStatus:
    """Unpin the server and wait for its end. One in use is only unpinned: it ends with its last user.

    Raises ServerUnreachable for one that does not end.
    """
    where = Home(home_directory(home))
    if where.exists:
        with where.deciding():
            where.pin.unlink(missing_ok=True)
            in_use = where.in_use()
        deadline = time.monotonic() + _STOPPING
        while not in_use and where.kept():
            if time.monotonic() > deadline:
                raise ServerUnreachable(f"{where.directory}: the server does not end in {_STOPPING:.0f} s")
            time.sleep(0.01)
    return _status(where)


def status(home: Path) -> ServerStatus:
    """How things stand; changes nothing, and makes no directory."""
    return _status(Home(home_directory(home)))


def unix_url(path: Path) -> str:
    """The URL of a server on a unix socket."""
    return "unix://" + quote(os.fsencode(path))


def _status(home: Home, notices: tuple[str, ...] = ()) -> ServerStatus:
    if not home.exists:
        return ServerStatus(False, None, None, None, False, False, home.directory, 0)
    with home.deciding():
        running, in_use, pinned = home.kept(), home.in_use(), home.pin.exists()
        path, sizes = home.address(), aof_sizes(home)
    info = answer(path) if running and path is not None else None
    return ServerStatus(
        running=running,
        pid=int(info["process_id"]) if info else None,
        version=info["valkey_version"] if info else None,
        url=unix_url(path) if running and path is not None else None,
        in_use=in_use,
        pinned=pinned,
        directory=home.directory,
        aof_bytes=sum(sizes.values()),
        notices=notices,
    )


@dataclass(frozen=True, slots=True)
class _Up:
    socket: Path
    info: Info
    notices: tuple[str, ...]


def _bring_up(home: Home, claim: Callable[[], None]) -> _Up:
    """Join or start. `claim` says that the server is wanted, before anyone could find that it is not."""
    home.prepare()
    for _ in range(_TRIES):
        with home.deciding():
            claim()
            kept = home.kept()
            socket = home.settle_address()  # after the look: an ending keeper removes the socket's directory
            sizes = None if kept else launch(home, socket)
        try:
            info = await_answer(home, socket)
        except Gone:
            if (reason := why_gone(home)) is not None:
                raise reason from None
            continue  # killed meanwhile, or it was ending already
        return _Up(socket, info, () if sizes is None else repairs(home, sizes))
    raise ServerUnreachable(f"the embedded server was killed {_TRIES} times as it started (its log is {home.log})")
