"""Trees as bytes: how a sealed workspace travels from the worker that made it to the scorer that judges it.

The worker ran code that nobody has read, so the scorer trusts nothing in the bytes: it unpacks what `pack`
could have made and refuses the rest, then computes the tree's hash anew and compares.

The bytes are a gzipped tar without owners and times: the same tree gives the same bytes. (Another release of
zlib may squeeze differently: the tree's name is its hash, not the digest of its bytes.)
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from bus.types import Digest
from workers.trees import (
    DIRECTORY,
    EXECUTABLE,
    FILE,
    LINK,
    MAX_DEPTH,
    Entry,
    TreeError,
    TreeHash,
    stays_inside,
    walk,
    write_entry,
)

__all__ = ["MAX_BYTES", "MAX_ENTRIES", "Packed", "pack", "unpack"]

MAX_BYTES: Final = 256 * 2**20
"""Contents of one packed tree. It is built and unpacked in memory."""

MAX_ENTRIES: Final = 20_000
"""Files, directories and links of one packed tree."""

_MAX_TAR: Final = MAX_BYTES + MAX_ENTRIES * 8 * tarfile.BLOCKSIZE
"""What the largest tree needs as a tar: a header each, padding, and room for long names."""

_GZIP: Final = 31
"""zlib's `wbits` for a gzip container; zlib writes no time into it."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A tree as bytes, and the name of what is in it."""

    data: bytes
    tree_hash: Digest


def pack(root: Path, ignore: Sequence[str] = ()) -> Packed:
    """A tree as bytes. Blocks while it reads.

    Every file is read once, for the bytes and for the hash, so that they cannot speak of two states of it.
    Raises `TreeError` for a tree that is over a limit or cannot be read.
    """
    total, buffer, room, count = TreeHash(ignore), io.BytesIO(), MAX_BYTES, 0
    try:
        with _tar(buffer, "w") as tar:
            for entry in walk(root, ignore):
                if entry.leads_out:
                    continue
                content = b"" if entry.file is None else entry.file.read(room + 1)
                count, room = count + 1, room - len(content)
                if room < 0:
                    raise TreeError(f"the tree holds more than {MAX_BYTES} bytes")
                if count > MAX_ENTRIES:
                    raise TreeError(f"the tree holds more than {MAX_ENTRIES} entries")
                total.add(entry, [content])
                tar.addfile(_member(entry, len(content)), io.BytesIO(content))
    except OSError as error:
        raise TreeError.from_os(error) from error
    squeeze = zlib.compressobj(level=6, wbits=_GZIP)
    return Packed(squeeze.compress(buffer.getbuffer()) + squeeze.flush(), total.digest())


def unpack(data: bytes, into: Path) -> None:
    """Write out what `pack` made, into a directory that is new or empty. The bytes are not trusted.

    Raises `TreeError` for anything that `pack` does not make: absolute paths, `..`, links that lead outside,
    a path below a link, one path twice, devices, growth beyond the limits. Then `into` holds a part of it.
    """
    plain = _expand(data)
    directories = {b""}
    try:
        into.mkdir(parents=True, exist_ok=True)
        if any(into.iterdir()):
            raise TreeError(f"{into} is not empty")
        with _tar(io.BytesIO(plain), "r") as tar:
            for count, member in enumerate(tar):
                if count == MAX_ENTRIES:
                    raise TreeError(f"the packed tree holds more than {MAX_ENTRIES} entries")
                entry = _trusted(member, tar, directories)
                write_entry(entry, into)
                if entry.mode == DIRECTORY:
                    directories.add(entry.path)
    except OSError as error:
        raise TreeError.from_os(error) from error
    except (tarfile.TarError, ValueError) as error:
        raise TreeError(f"not a packed tree: {error}") from error


def _expand(data: bytes) -> bytes:
    expand = zlib.decompressobj(wbits=_GZIP)
    try:
        plain = expand.decompress(data, _MAX_TAR)
    except zlib.error as error:
        raise TreeError(f"not a packed tree: {error}") from None
    if expand.unconsumed_tail:
        raise TreeError(f"the packed tree grows beyond {_MAX_TAR} bytes")
    if not expand.eof or expand.unused_data:
        raise TreeError("not a packed tree: it is cut, or followed by something else")
    return plain


def _trusted(member: tarfile.TarInfo, tar: tarfile.TarFile, directories: set[bytes]) -> Entry:
    """A member as an entry, if `pack` could have made it. `directories` are those made so far: real ones."""
    path = os.fsencode(member.name)
    parts = path.split(b"/")
    if any(part in (b"", b".", b"..") for part in parts) or len(parts) > MAX_DEPTH:
        raise TreeError(f"{member.name!r} is no path inside a tree")
    if b"/".join(parts[:-1]) not in directories:
        raise TreeError(f"{member.name!r} stands in no directory of the tree")
    match member.type:
        case tarfile.DIRTYPE:
            return Entry(path, DIRECTORY)
        case tarfile.SYMTYPE:
            link = os.fsencode(member.linkname)
            if not stays_inside(path, link):
                raise TreeError(f"the link {member.name!r} leads out of the tree")
            return Entry(path, LINK, link=link)
        case tarfile.REGTYPE | tarfile.AREGTYPE:
            file = tar.extractfile(member)
            content = b"" if file is None else file.read()
            mode = EXECUTABLE if member.mode & stat.S_IXUSR else FILE
            return Entry(path, mode, file=io.BytesIO(content))
        case _:
            raise TreeError(f"{member.name!r} is neither a file, a directory nor a link")


def _member(entry: Entry, length: int) -> tarfile.TarInfo:
    # In a new TarInfo user, group and time are zero, and the names of user and group are empty.
    member = tarfile.TarInfo(entry.name)
    member.mode = 0o644 if entry.mode == FILE else 0o755
    member.size = length
    if entry.mode == DIRECTORY:
        member.type = tarfile.DIRTYPE
    elif entry.mode == LINK:
        member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(entry.link)
    return member


def _tar(buffer: BinaryIO, mode: Literal["r", "w"]) -> tarfile.TarFile:
    # GNU format: names are plain bytes of any length, and nothing depends on the locale.
    return tarfile.TarFile(
        fileobj=buffer, mode=mode, format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    )
