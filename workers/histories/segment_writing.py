"""One segment of a growing archive, as it is written."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from bus.archived import Segment, Standing, order_of
from bus.errors import InputError, ViolationError
from bus.export_format import spelt
from bus.types import Digest, EntryId
from workers.histories.history_files import writing
from workers.histories.segments import FORMAT, VERSION, SegmentFiles, closing_of

__all__ = ["SegmentWriter"]


class SegmentWriter:
    """One segment as it is written, under a name that nobody reads; its own it gets when it was read back."""

    def __init__(self, files: SegmentFiles, standing: Standing, first: EntryId) -> None:
        """`standing`: how far the batch is archived, which this goes on from. Raises InputError."""
        self._files, self._standing, self._first = files, standing, first
        self._file = files.directory / f".evalbus-{secrets.token_hex(8)}.tmp.zst"
        self._total = hashlib.sha256()
        self._stack = contextlib.ExitStack()
        self._last, self._head = EntryId(""), standing.head
        self.entries, self._lines, self.bytes = 0, standing.lines, 0
        self._out = self._stack.enter_context(writing(self._file))
        self._write(
            spelt(
                {
                    "format": FORMAT,
                    "version": VERSION,
                    "batch": files.batch,
                    "plane": files.plane,
                    "incarnation": files.incarnation,
                    "number": standing.number + 1,
                    "first": first,
                    "previous": standing.digest,
                    "lines": standing.lines,
                    "head": standing.head,
                }
            ).encode()
            + b"\n"
        )

    def add(self, entry: EntryId, line: bytes, head: str) -> None:
        """A line of the export, of this entry; `head` is the chain behind it. Raises InputError: the disk is full."""
        if entry != self._last:
            assert order_of(entry) > order_of(self._last), "entries come in order"
            self._last, self.entries = entry, self.entries + 1
        self._lines, self._head = self._lines + 1, head
        self._write(line)

    def end(self) -> Segment:
        """Close it and flush it to the disk. Blocks. Raises InputError."""
        segment = Segment(
            number=self._standing.number + 1,
            first=self._first,
            last=self._last,
            entries=self.entries,
            lines=self._lines,
            head=self._head,
            previous=self._standing.digest,
            digest=Digest(self._total.hexdigest()),
        )
        try:
            self._out.write(spelt(closing_of(segment)).encode() + b"\n")
            self._stack.close()  # flushed to the disk, and under the name that nobody reads
        except (OSError, InputError) as error:
            raise self._full(error) from error
        return segment

    def name(self, segment: Segment) -> None:
        """Give it its name, and read it back from the disk. Blocks. Raises InputError, ViolationError."""
        place = self._files.file_of(segment.number, segment.digest)
        try:
            self._file.replace(place)  # over nothing, or over the very same
            directory = os.open(place.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            _forget_cached(place)
        except OSError as error:
            raise InputError(f"cannot be put there: {error.strerror}", file=place) from error
        if self._files.read(segment.number, segment.digest, []) != segment:
            raise ViolationError(f"{place}: what was read back is not what was written")

    def give_up(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(Exception):
            self._stack.__exit__(InputError, InputError("given up"), None)
        with contextlib.suppress(OSError):
            self._file.unlink()

    def _write(self, line: bytes) -> None:
        try:
            self._out.write(line)
        except OSError as error:
            raise self._full(error) from error
        self._total.update(line)
        self.bytes += len(line)

    def _full(self, error: OSError | InputError) -> InputError:
        problem = error.problem if isinstance(error, InputError) else f"cannot be written: {error.strerror}"
        return InputError(f"segment {self._standing.number + 1} {problem}", file=self._files.directory)


def _forget_cached(file: Path) -> None:
    """Have the next read come from the disk, where the system can be told so."""
    if hasattr(os, "posix_fadvise"):
        held = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(held, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(held)
