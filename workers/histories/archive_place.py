"""The directory of an archive that grows while its batch runs: whether it can be written, and when a segment is due."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from bus.errors import InputError

__all__ = ["SEGMENT", "check_archive", "most", "not_writable", "probe"]

SEGMENT: Final = 5_000
"""Entries in a segment: one or two megabytes of the server, and half a second's work."""
_STAY: Final = 5  # of the entries of a segment one in so many stays on the server behind the last one


def most(segment: int) -> int:
    """Entries that may stand on the server before a segment is due: one, and some that stay."""
    return segment + max(1, segment // _STAY)


def check_archive(archive: Path) -> Path:
    """An archive's directory, resolved; made if it is not there. Raises InputError when none can be written there."""
    try:
        archive.mkdir(parents=True, exist_ok=True)
        probe(archive)
        return archive.resolve()
    except (OSError, RuntimeError) as error:
        raise not_writable(archive, error) from error


def probe(directory: Path) -> None:
    """Write there, and leave nothing. Raises OSError."""
    file = directory / f".evalbus-{secrets.token_hex(8)}.tmp.zst"
    os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    file.unlink(missing_ok=True)  # an archivist that has just taken over clears what others have begun, this too


def not_writable(directory: Path, error: Exception) -> InputError:
    """The one line for it."""
    problem = f"no history can be archived there: {getattr(error, 'strerror', None) or error}"
    return InputError(problem, file=directory, remedy="name another --archive")
