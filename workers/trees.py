"""Directory trees as values: walked, hashed, copied, removed.

A verdict belongs to the tree that was tested, so a tree has a name that anyone can compute again. The name
covers paths, modes, contents, and the list of patterns that were left out; nothing else: no owners, no times,
of the modes only the executable bit, and not the way in which a tree travelled.

    "evalbus-tree 1" NUL  ("ignore " pattern NUL)*  (mode " " sha256 " " path NUL)*     -> SHA-256

`mode` as in git: 040000 directory, 100644 file, 100755 executable file, 120000 link (hashed: its text). Depth
first, the names of a directory in byte order. Sockets, pipes, devices and links that lead out of the tree are
not content: they are left out.

Ignore patterns are shell globs. One without `/` is compared with every name on the path, one with `/` with
the whole relative path.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from bus.types import Digest

__all__ = [
    "Entry",
    "TreeError",
    "TreeHash",
    "copy_tree",
    "hash_entries",
    "ignored",
    "remove_tree",
    "stays_inside",
    "tree_hash",
    "walk",
    "write_entry",
]

MAX_DEPTH: Final = 60
"""Directories inside each other: each holds a file descriptor open while it is walked."""

_CHUNK: Final = 2**20

DIRECTORY: Final = 0o040000
FILE: Final = 0o100644
EXECUTABLE: Final = 0o100755
LINK: Final = 0o120000


class TreeError(Exception):
    """A tree that cannot be read, packed or unpacked; `str(error)` is one line."""

    @classmethod
    def from_os(cls, error: OSError) -> TreeError:
        """What the system said, with the name that it said it of."""
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        return cls(f"{where}{error.strerror or error}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a tree: `path` relative, parts joined by `/`; `mode` as in git; `link` a link's text.

    `file` is open for reading only until the walk goes on to the next entry.
    """

    path: bytes
    mode: int
    link: bytes = b""
    file: BinaryIO | None = None

    @property
    def name(self) -> str:
        """The path as text, undecodable bytes escaped the way `os.fsdecode` does."""
        return os.fsdecode(self.path)

    @property
    def leads_out(self) -> bool:
        """Whether it is a link that may lead out of its tree."""
        return self.mode == LINK and not stays_inside(self.path, self.link)


def walk(root: Path, ignore: Sequence[str] = ()) -> Iterator[Entry]:
    """The entries of a tree, a directory before what it holds. Raises `OSError` and `TreeError`.

    Directories are held open and names are looked up in them, never by path from the top: a process that is
    still at work in the tree cannot swap a directory for a link and lead the walk out of it.
    """
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield from _walk(top, b"", ignore, MAX_DEPTH)
    finally:
        os.close(top)


def _walk(parent: int, prefix: bytes, ignore: Sequence[str], depth: int) -> Iterator[Entry]:
    if depth == 0:
        raise TreeError(f"directories are nested more than {MAX_DEPTH} deep, below {os.fsdecode(prefix[:60])}")
    for name in sorted(os.fsencode(name) for name in os.listdir(parent)):
        path = prefix + name
        if ignored(os.fsdecode(path), ignore):
            continue
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            yield Entry(path, LINK, link=os.readlink(name, dir_fd=parent))
        elif stat.S_ISDIR(mode):
            yield Entry(path, DIRECTORY)
            child = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            try:
                yield from _walk(child, path + b"/", ignore, depth - 1)
            finally:
                os.close(child)
        elif stat.S_ISREG(mode):
            # Non-blocking, for what was swapped for a pipe since it was looked at.
            opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
            with os.fdopen(opened, "rb") as file:
                yield Entry(path, EXECUTABLE if mode & stat.S_IXUSR else FILE, file=file)


def ignored(path: str, patterns: Sequence[str]) -> bool:
    """Whether a relative path, or a directory above it, matches one of the patterns."""
    parts = path.split("/")
    wholes = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    return any(
        fnmatch.fnmatchcase(name, pattern.strip("/"))
        for pattern in patterns
        for name in (wholes if "/" in pattern else parts)
    )


def stays_inside(path: bytes, link: bytes) -> bool:
    """Whether a link at `path` can be followed without leaving the tree.

    `..` is allowed only at the front, where it climbs real directories. Behind a name it may climb out of
    wherever another link has led: with `a/b/p -> ../..`, the harmless looking `a/b/p/../x` is outside.
    """
    if not link or link.startswith(b"/"):
        return False
    parts = [part for part in link.split(b"/") if part not in (b"", b".")]
    climbs = 0
    while climbs < len(parts) and parts[climbs] == b"..":
        climbs += 1
    return b".." not in parts[climbs:] and climbs <= path.count(b"/")


class TreeHash:
    """The hash described at the top, built entry by entry, in the order of the walk."""

    def __init__(self, ignore: Sequence[str]) -> None:
        """`ignore` is the list that was left out, as the suite declares it."""
        self._hash = hashlib.sha256(b"evalbus-tree 1\0")
        for pattern in ignore:
            self._hash.update(b"ignore " + pattern.encode() + b"\0")

    def add(self, entry: Entry, content: Iterable[bytes]) -> None:
        """Add an entry; `content` is a file's, in any pieces, and empty for all else."""
        own = hashlib.sha256(entry.link)
        for piece in content:
            own.update(piece)
        self._hash.update(f"{entry.mode:06o} {own.hexdigest()} ".encode() + entry.path + b"\0")

    def digest(self) -> Digest:
        """The tree's name."""
        return Digest(self._hash.hexdigest())


def hash_entries(entries: Iterable[Entry], ignore: Sequence[str]) -> Digest:
    """The hash of the entries given, each read while it is the current one."""
    total = TreeHash(ignore)
    for entry in entries:
        total.add(entry, _pieces(entry.file) if entry.file else ())
    return total.digest()


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(_CHUNK):
        yield piece


def tree_hash(root: Path, ignore: Sequence[str] = ()) -> Digest:
    """The name of a tree. Blocks while it reads. Raises `TreeError` when it cannot be read."""
    try:
        return hash_entries((entry for entry in walk(root, ignore) if not entry.leads_out), ignore)
    except OSError as error:
        raise TreeError.from_os(error) from error


def write_entry(entry: Entry, into: Path) -> None:
    """Make an entry where nothing stands yet; the directory that it goes into is there. Raises `OSError`."""
    target = into / entry.name
    if entry.mode == LINK:
        target.symlink_to(os.fsdecode(entry.link))
        return
    if entry.mode == DIRECTORY:
        target.mkdir()
    else:
        with target.open("xb") as file:  # "x" neither overwrites nor follows a link
            if entry.file is not None:
                shutil.copyfileobj(entry.file, file)
    target.chmod(0o644 if entry.mode == FILE else 0o755)


def copy_tree(source: Path, into: Path, left_out: Callable[[str], bool] = lambda _name: False) -> None:
    """Copy a tree over another. What stands in the way of an entry is removed; links are not followed.

    So a candidate that left a link or a directory where a hidden test goes can neither send the test
    somewhere else nor keep it out. `left_out` says of a relative path whether it is not copied; of a directory
    that is left out, it says so of all that is below, too. Raises `TreeError`.
    """
    try:
        into.mkdir(parents=True, exist_ok=True)
        for entry in walk(source):
            if left_out(entry.name):
                continue
            if entry.leads_out:
                raise TreeError(f"the link {entry.name!r} leads out of {source}")
            target = into / entry.name
            if target.is_symlink() or not target.is_dir():
                target.unlink(missing_ok=True)
            elif entry.mode == DIRECTORY:
                continue
            else:
                remove_tree(target)
            write_entry(entry, into)
    except OSError as error:
        raise TreeError.from_os(error) from error


def remove_tree(path: Path) -> None:
    """Remove a directory and all in it, also directories that were made unreadable. Missing is fine."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except PermissionError:
        # A run may take the rights on its own directories away; they are still ours to give back.
        path.chmod(0o700)
        for above, names, _ in os.walk(path):
            for child in (Path(above, name) for name in names):
                if not child.is_symlink():
                    child.chmod(0o700)
        shutil.rmtree(path)
