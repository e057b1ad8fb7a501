"""Where an embedded server keeps its files, and where its socket can be.

    .evalbus/                 the home: in the current directory, or $EVALBUS_HOME
      .gitignore
      server/                 for the owner only; the server's working directory
        start.lock users.lock keeper.lock data.lock      see bus.keeper
        pinned                there when `evalbus server start` told the server to stay
        server.conf           written at each start
        server.log keeper.log since the last start; server.log.1 of the start before
        server.sock           the socket, when its path is short enough
        address               where the socket is instead, when it is not
        appendonlydir/        the data

A socket's path must fit into some hundred bytes; a home's need not. So the socket of a deep home lives in a
private directory under $XDG_RUNTIME_DIR or the temporary one, named by a digest of the home's path. That
place is written down in `address`: a process with another environment must find the same socket, and after a
restart so must those who were given its URL.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bus import keeper
from bus.errors import InputError, ServerUnreachable

__all__ = ["Home", "home_directory"]

_SUN_PATH = 103  # bytes: the field holds 104 on macOS and 108 on Linux, and ends with a zero
_PATIENCE = 30.0  # seconds to wait for whoever starts or ends the server; neither takes more than some 20
_SOCKET = "server.sock"


def home_directory(explicit: Path | None = None) -> Path:
    """The home: `explicit`, or else $EVALBUS_HOME, or else `.evalbus` here. Absolute; it need not exist."""
    named = explicit or os.environ.get("EVALBUS_HOME") or ".evalbus"
    return Path(os.path.realpath(named))  # two names of one directory must lead to one socket


@dataclass(frozen=True, slots=True)
class Home:
    """One home directory and the paths in it."""

    root: Path

    @property
    def directory(self) -> Path:
        """The server's directory."""
        return self.root / "server"

    @property
    def data(self) -> Path:
        """The directory of the append-only files."""
        return self.directory / "appendonlydir"

    @property
    def log(self) -> Path:
        """What the server wrote since its last start."""
        return self.directory / "server.log"

    @property
    def keeper_log(self) -> Path:
        """What keeper and server wrote before that log was open; empty in good times."""
        return self.directory / "keeper.log"

    @property
    def pin(self) -> Path:
        """The file whose presence keeps the server up without users."""
        return self.directory / keeper.PIN

    @property
    def exists(self) -> bool:
        """Whether there has ever been a server here."""
        with self._usable():
            return self.directory.is_dir()

    def prepare(self) -> None:
        """Make the directories. Raises InputError when they cannot be made."""
        with self._usable():
            self.root.mkdir(parents=True, exist_ok=True)
            self.directory.mkdir(mode=0o700, exist_ok=True)
            ignore = self.root / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")

    @contextlib.contextmanager
    def deciding(self) -> Iterator[None]:
        """While held, nobody else starts or ends the server. An OSError inside becomes an InputError."""
        with self._usable():
            fd = keeper.lock(self.directory / keeper.START_LOCK, exclusive=True, patience=_PATIENCE)
            if fd is None:
                raise ServerUnreachable(
                    f"{self.directory}: another process has been starting or ending the server here"
                    f" for {_PATIENCE:.0f} s"
                )
            try:
                yield
            finally:
                os.close(fd)

    def join(self) -> int:
        """Become a user; the descriptor holds the share. Only while `deciding`. Raises ServerUnreachable."""
        path = self.directory / keeper.USERS_LOCK
        fd = keeper.lock(path, exclusive=False, patience=_PATIENCE)
        if fd is None:
            raise ServerUnreachable(f"{path}: locked by a process that is not evalbus")
        return fd

    def joined(self, fd: int) -> bool:
        """Whether `fd` is a share of this home as it is now: it may have been deleted and made again."""
        return keeper.names(self.directory / keeper.USERS_LOCK, fd)

    def in_use(self) -> bool:
        """Whether there are users. Only while `deciding`: for an instant nobody else could become one."""
        return self._held(keeper.USERS_LOCK, exclusive=True)

    def kept(self) -> bool:
        """Whether there is a keeper, and so a server, or soon one."""
        return self._held(keeper.KEEPER_LOCK, exclusive=False)

    def data_in_use(self) -> bool:
        """Whether a keeper or a server has the data."""
        return self._held(keeper.DATA_LOCK, exclusive=False)

    def _held(self, name: str, *, exclusive: bool) -> bool:
        with self._usable():
            fd = keeper.lock(self.directory / name, exclusive=exclusive, patience=0)
        if fd is None:
            return True
        os.close(fd)
        return False

    def address(self) -> Path | None:
        """The path of the socket, or None when it has not been settled yet."""
        natural = self.directory / _SOCKET
        if _fits(natural):
            return natural
        try:
            return Path(os.fsdecode((self.directory / "address").read_bytes()))
        except FileNotFoundError:
            return None

    def settle_address(self) -> Path:
        """The path of the socket, its directory made. Only while `deciding`. Raises InputError where none fits."""
        known = self.address()
        if known is not None and _fits(known) and (known.parent == self.directory or _private(known.parent)):
            return known
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:16]
        for base in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):  # noqa: S108 - see _private
            path = Path(base or "/") / f"evalbus-{os.getuid()}-{digest}" / _SOCKET
            if base and _fits(path) and _private(path.parent):
                (self.directory / "address").write_bytes(os.fsencode(path))
                return path
        problem = "the path is too long for a socket, and no temporary directory has a place for it"
        raise InputError(problem, file=self.root, remedy="set TMPDIR to a short path of your own")

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(
                f"the server's files cannot be kept here: {(error.strerror or str(error)).lower()}",
                file=self.root,
                remedy="name a directory on a local disk that you may write to: --home DIR, or EVALBUS_HOME",
            ) from error


def _fits(path: Path) -> bool:
    return len(os.fsencode(path)) <= _SUN_PATH


def _private(place: Path) -> bool:
    """Make the directory; whether it is ours alone: its name can be guessed, another may have been first."""
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
