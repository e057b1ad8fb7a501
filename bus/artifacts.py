"""The artifact store: bytes that are too large for the server, where all machines can reach them.

Content-addressed: an artifact's name is the SHA-256 of its bytes. So writing twice is writing once, whoever writes
second writes the same, and a reader can tell whether it got what was named.

    DIR, file:///dir          a directory that the machines share
    s3://bucket/prefix        S3, or what speaks its protocol (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, …; `evalbus[s3]`)
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote, urlsplit

from bus.errors import ArtifactUnreachable, InputError
from bus.types import Digest

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["ArtifactStore", "BucketArtifacts", "DirectoryArtifacts", "artifacts_for", "open_artifacts"]

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_PROBE: Final = 2**20
"""Bytes that have to fit before a full disk counts as one that has room again: artifacts are at least 256 kB."""
_NOBODYS: Final = Digest("0" * 64)
"""A name that no bytes have: to ask whether a store answers at all."""


class ArtifactStore(Protocol):
    """Where artifacts are kept."""

    name: str
    """What it is called in messages."""

    async def put(self, digest: Digest, data: bytes) -> None:
        """Store; whole or not at all, also when the machine dies in between. Raises ArtifactUnreachable."""

    async def get(self, digest: Digest) -> bytes | None:
        """The bytes under that name, or None. The caller rehashes. Raises ArtifactUnreachable."""


def open_artifacts(where: str) -> ArtifactStore:
    """The store that a `--artifacts` option names. Nothing is written yet. Raises InputError."""
    parts = urlsplit(where)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InputError(
                f"--artifacts {where}: a file URL names no other machine", remedy="write file:///directory"
            )
        return DirectoryArtifacts(Path(unquote(parts.path)))
    if parts.scheme == "s3":
        if not parts.netloc:
            raise InputError(f"--artifacts {where}: no bucket is named", remedy="write s3://bucket/prefix")
        return BucketArtifacts(parts.netloc, parts.path.strip("/"))
    if "://" in where:
        raise InputError(
            f"--artifacts {where}: nothing here reads {parts.scheme}://",
            remedy="give a directory, or s3://bucket/prefix",
        )
    return DirectoryArtifacts(Path(where))


def artifacts_for(where: str | None, url: str | None, home: Path) -> ArtifactStore | None:
    """The store of a process: the one that was named, else, on the private server, a directory beside its data.

    None on a server of the user's when none was named. Raises InputError.
    """
    if where:
        return open_artifacts(where)
    return None if url else DirectoryArtifacts(home / "artifacts")


class DirectoryArtifacts:
    """A directory of content-addressed files, two levels deep."""

    def __init__(self, root: Path) -> None:
        """`root` is made when the first artifact is stored."""
        self._root, self.name = root, str(root)

    def _path(self, digest: Digest) -> Path:
        return self._root / digest[:2] / digest

    async def put(self, digest: Digest, data: bytes) -> None:
        """Store; whole or not at all, also when the machine dies in between."""
        try:
            await asyncio.to_thread(self._write, self._path(digest), data)
        except OSError as error:
            raise self._unusable("an artifact cannot be stored", error, self._try_to_write) from error

    def _write(self, path: Path, data: bytes) -> None:
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

    async def get(self, digest: Digest) -> bytes | None:
        """The bytes under that name, or None. The caller rehashes."""
        try:
            return await asyncio.to_thread(self._path(digest).read_bytes)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unusable("an artifact cannot be read", error, self._try_to_read) from error

    def _unusable(self, what: str, error: OSError, again: Callable[[], None]) -> ArtifactUnreachable:
        remedy = "make room" if error.errno in _FULL else "give a directory that this machine can use: --artifacts DIR"
        unusable = ArtifactUnreachable(f"{self.name}: {what}: {error.strerror or error}", remedy=remedy)

        async def recheck() -> None:
            try:
                await asyncio.to_thread(again)
            except OSError as still:
                raise self._unusable(what, still, again) from still

        unusable.recheck = recheck
        return unusable

    def _try_to_write(self) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._root, prefix=".new-") as file:
            file.write(bytes(_PROBE))
            file.flush()
            os.fsync(file.fileno())

    def _try_to_read(self) -> None:
        # What could be read before it went wrong is not remembered; a directory is read, and one of its files opened.
        for folder in (self._root, *self._root.iterdir()):
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.is_file():
                    with path.open("rb") as file:
                        file.read(1)
                    return


class BucketArtifacts:
    """A bucket, or a part of one. An object appears whole or not at all: that is S3's own promise for a PUT."""

    def __init__(self, bucket: str, prefix: str) -> None:
        """Endpoint, region and keys come from the AWS variables of the environment. Raises InputError."""
        try:
            from obstore.store import S3Store  # noqa: PLC0415 - an extra, and slow to import
        except ImportError:
            raise InputError("S3 takes a package that is not installed", remedy="pip install 'evalbus[s3]'") from None
        self.name = f"s3://{bucket}/{prefix}".rstrip("/")
        plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
        try:
            self._store: S3Store = S3Store(
                bucket, prefix=prefix or None, client_options={"allow_http": plain, "timeout": "60s"}
            )
        except Exception as error:  # the library raises what its settings make it
            raise self._unusable(error) from error

    async def put(self, digest: Digest, data: bytes) -> None:
        """Store. The same name is the same bytes: an object that is there already is not sent again."""
        import obstore  # noqa: PLC0415 - see __init__
        from obstore.exceptions import BaseError  # noqa: PLC0415

        if await self._is_there(digest):
            return
        try:
            await obstore.put_async(self._store, self._path(digest), data)
        except (BaseError, FileNotFoundError) as error:  # the latter: no such bucket
            raise self._unusable(error) from error

    async def _is_there(self, digest: Digest) -> bool:
        import obstore  # noqa: PLC0415
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            await obstore.head_async(self._store, self._path(digest))
        except FileNotFoundError:
            return False
        except BaseError as error:
            raise self._unusable(error) from error
        return True

    async def get(self, digest: Digest) -> bytes | None:
        """The bytes under that name, or None. The caller rehashes."""
        import obstore  # noqa: PLC0415
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            found = await obstore.get_async(self._store, self._path(digest))
            return bytes(await found.bytes_async())
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise self._unusable(error) from error

    @staticmethod
    def _path(digest: Digest) -> str:
        return f"{digest[:2]}/{digest}"

    async def _recheck(self) -> None:
        await self._is_there(_NOBODYS)

    def _unusable(self, error: BaseException) -> ArtifactUnreachable:
        # The library's text is long and may quote what was sent: its kind says enough.
        unusable = ArtifactUnreachable(
            f"{self.name} cannot be used ({type(error).__name__})",
            remedy="check AWS_ENDPOINT_URL, AWS_REGION and the keys in this environment, and that the bucket exists",
        )
        unusable.recheck = self._recheck
        return unusable
