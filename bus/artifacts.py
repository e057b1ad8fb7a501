"""The artifact store: bytes that are too large for the server, in a directory that the machines share.

Content-addressed: a file's name is the SHA-256 of its bytes, so writing twice is writing once, and a reader can tell
whether it got what was named.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bus.types import Digest

__all__ = ["ArtifactStore"]


class ArtifactStore:
    """A directory of content-addressed files, two levels deep."""

    def __init__(self, root: Path) -> None:
        """`root` is made when the first artifact is stored."""
        self._root = root

    def _path(self, digest: Digest) -> Path:
        return self._root / digest[:2] / digest

    def put(self, digest: Digest, data: bytes) -> None:
        """Store; whole or not at all, also when the machine dies in between."""
        path = self._path(digest)
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def get(self, digest: Digest) -> bytes | None:
        """The bytes under that name, or None. The caller rehashes."""
        try:
            return self._path(digest).read_bytes()
        except FileNotFoundError:
            return None
