"""Result files that are whole or not there.

A reader (a CI step, a dashboard) that finds half a JSON file takes it for a broken run, or worse, for a short
one. So a file is written beside its place, flushed to disk, and moved over it in one step. And because a run
may cost hours, the place is tried before anything starts, not when the numbers are ready.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bus.errors import InputError

__all__ = ["check_writable", "write_whole", "writing_whole"]


def check_writable(path: Path) -> None:
    """Raise `InputError` if `write_whole(path, …)` could not succeed now. Leaves nothing behind.

    A permission bit says little (root, read-only mounts, full quotas), so it is tried: the file is
    opened, and one is made beside it.
    """
    target = _target(path)
    try:
        if target.is_dir():
            raise InputError("is a directory", file=path, remedy="name a file")
        if not target.parent.is_dir():
            made = "is not a directory" if target.parent.exists() else "does not exist"
            raise InputError(f"its directory {made}", file=path, remedy="create it, or name another")
        with contextlib.suppress(FileNotFoundError):
            target.stat()  # some versions of `exists` say no instead of "File name too long"
        if not _is_stream(target):
            if target.exists():  # a move would not ask for this permission, but somebody took it away
                os.close(os.open(target, os.O_WRONLY))
            probe = _beside(target)
            os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            probe.unlink()
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from error


def write_whole(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all: see `writing_whole`."""
    data = text.encode()
    with writing_whole(path) as file:
        file.write(data)


@contextlib.contextmanager
def writing_whole(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its place when the block ends; on an error the old content stands.

    A symbolic link is followed, an existing file keeps its mode, a pipe or a device is written to directly
    (what reads it sees its end). Raises `InputError` with the system's reason.
    """
    target = _target(path)
    try:
        with target.open("wb") if _is_stream(target) else _replacing(target) as file:
            yield file
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path) from error


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    beside = _beside(target)
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:  # noqa: PTH123
            if target.exists():
                os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except BaseException:  # an interrupt too must not leave half a file lying there
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    # The new name is in the directory's own pages: without this a power loss may bring the old file back.
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _target(path: Path) -> Path:
    """Where the bytes go: a link stays a link, and what it points to is replaced."""
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise InputError("cannot be resolved", file=path) from error


def _is_stream(target: Path) -> bool:
    """True for what cannot be replaced by a file and must not be: a pipe, a terminal, `/dev/null`."""
    return target.exists() and not target.is_file()


def _beside(target: Path) -> Path:
    """A free name in the same directory: only within one file system is a move one step."""
    return target.with_name(f".evalbus-{secrets.token_hex(8)}.tmp")
