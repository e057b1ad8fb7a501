"""The files of an archive that grows while its batch runs: one a segment of the history, chained to the one before.

    DIR/<plane>/<batch>.segments/000001-3f2a….jsonl.zst, 000002-…

    {"format": "evalbus-history-segment", "version": 1, "batch", "plane", "incarnation", "number", "first",
     "previous", "lines", "head"}                      what stands before it: digest, lines of the export, chain
    {"id", "fence", …, "chain"}                         the lines of the export, as they are
    {"last", "entries", "lines", "head", "digest"}

`digest` is the SHA-256 of all lines before it, and `previous` that of the segment before: the server's row names the
last digest, and so every byte of every file. A file's name has its digest in it. So two archivists, of whom one does
not know yet that it was replaced, never write to the same name unless they write the same; and a file that was written
and never counted, because its writer died, is never looked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bus.archived import NOTHING, SEGMENT_FORMAT, Segment, Standing
from bus.errors import InputError, ViolationError
from bus.export_format import spelt
from bus.port import BatchInfo
from bus.types import BatchId, Digest, EntryId
from workers.histories.archive_place import not_writable, probe
from workers.histories.history_files import LONGEST_LINE, reading

__all__ = ["FORMAT", "VERSION", "SegmentFiles", "chain_of", "closing_of", "entry_of"]

FORMAT, VERSION = SEGMENT_FORMAT, 1
_NAME = re.compile(r"(\d{6,})-([0-9a-f]{16})\.jsonl\.zst")
_UNFINISHED = ".evalbus-*.tmp*"
_CLOSING = b'{"last":'
_ID = slice(len(b'{"id":"'), 60)  # where a line has its entry's id
_CHAIN = slice(-67, -3)  # where the chain stands in a line: before `"}` and the newline


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file as it was when its first line was read, and which segment that line names as the one before."""

    size: int
    mtime_ns: int
    previous: Digest


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The segments of one batch in an archive's directory."""

    directory: Path
    batch: BatchId
    plane: str
    incarnation: str
    _seen: dict[tuple[int, Digest], _Seen] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, archive: Path, info: BatchInfo) -> SegmentFiles:
        """Where those of a batch are, or would be. Touches nothing."""
        batch, plane = info.spec.batch, info.plane.value
        return cls(archive / plane / f"{batch}.segments", batch, plane, info.incarnation)

    def make(self) -> None:
        """The directory. Raises InputError when it cannot be made, or written to."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            probe(self.directory)
        except OSError as error:
            raise not_writable(self.directory, error) from error

    def clear_unfinished(self) -> None:
        """Remove what an archivist that was killed has begun. Only for the one who holds the archive."""
        for left in self.directory.glob(_UNFINISHED):
            with contextlib.suppress(OSError):
                left.unlink()

    def file_of(self, number: int, digest: Digest) -> Path:
        """Where a segment is."""
        return self.directory / f"{number:06d}-{digest[:16]}.jsonl.zst"

    def chain(self, standing: Standing, after: int = 0) -> list[tuple[int, Digest]]:
        """The segments behind number `after`, first to last: found from the last one, each by what the next one names.

        Reads their first lines only, each once while its file stays as it is. Raises InputError for one that is
        missing, or another batch's; ViolationError.
        """
        found: list[tuple[int, Digest]] = []
        number, digest = standing.number, standing.digest
        while number > after:
            found.append((number, digest))
            number, digest = number - 1, self._previous(number, digest, standing)
        if number == 0 and digest != NOTHING:
            raise ViolationError(f"{self.directory}: segment 1 follows another one: {digest}")
        return found[::-1]

    def lines(self, number: int, digest: Digest) -> list[bytes]:
        """A segment's lines of history, read from the disk and checked: a segment is held in memory, not more.

        Raises InputError for a file that is missing or cut off, ViolationError for another than the chain names.
        """
        found: list[bytes] = []
        self.read(number, digest, found)
        return found

    def read(self, number: int, digest: Digest, into: list[bytes]) -> Segment:
        """Read a segment whole, its lines into `into`, and say what it is. Raises as `lines`."""
        file = self._there(number, digest, None)
        total, closing = hashlib.sha256(), b""
        with reading(file) as lines:
            raw = lines.readline(LONGEST_LINE)
            opening = self._opening(raw, number, digest)
            total.update(raw)
            while raw := lines.readline(LONGEST_LINE):
                if raw.startswith(_CLOSING):
                    closing = raw
                    break
                total.update(raw)
                into.append(raw)
            behind = lines.read(1)
        derived = total.hexdigest()
        if closing and derived != digest:
            raise ViolationError(
                f"{file}: was edited, or is another segment: the chain names {digest}, its content has {derived}"
            )
        if not closing.endswith(b"\n") or not into:
            problem = "is truncated: its closing line is missing"
            raise InputError(problem, file=file, remedy="bring back a whole copy of it")
        entries = dict.fromkeys(entry_of(line) for line in into)
        segment = Segment(
            number=number,
            first=EntryId(opening["first"]),
            last=entry_of(into[-1]),
            entries=len(entries),
            lines=opening["lines"] + len(into),
            head=chain_of(into[-1]),
            previous=Digest(opening["previous"]),
            digest=digest,
        )
        if behind or spelt(closing_of(segment)).encode() + b"\n" != closing:
            raise ViolationError(f"{file}: was edited: its closing line is not the one that was written")
        return segment

    def remove(self) -> None:
        """All segments of this very batch; then the directory, when nothing else is in it. Raises InputError.

        Another server's batch of that name may be archived to the same place.
        """
        try:
            if not self.directory.is_dir():
                return
            for file in self.directory.iterdir():
                if named := _NAME.fullmatch(file.name):
                    with contextlib.suppress(InputError, ViolationError), reading(file) as lines:
                        self._opening(lines.readline(LONGEST_LINE), int(named[1]), Digest(""))
                        file.unlink(missing_ok=True)
            self.clear_unfinished()
            with contextlib.suppress(OSError):  # somebody keeps something else there
                self.directory.rmdir()
        except OSError as error:
            raise InputError(f"cannot be removed: {error.strerror}", file=self.directory) from error

    def _previous(self, number: int, digest: Digest, standing: Standing) -> Digest:
        """Which segment stands before this one. Raises as `chain`."""
        file = self._there(number, digest, standing)
        try:
            told = file.stat()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", file=file) from error
        seen = self._seen.get((number, digest))
        if seen is None or (seen.size, seen.mtime_ns) != (told.st_size, told.st_mtime_ns):
            with reading(file) as lines:
                opening = self._opening(lines.readline(LONGEST_LINE), number, digest)
            seen = self._seen[number, digest] = _Seen(told.st_size, told.st_mtime_ns, Digest(opening["previous"]))
        return seen.previous

    def _there(self, number: int, digest: Digest, standing: Standing | None) -> Path:
        file = self.file_of(number, digest)
        if file.is_file():
            return file
        place = f"it was archived to {standing.place}: " if standing is not None and standing.place else ""
        raise InputError(
            f"segment {number} of the history of batch {self.batch!r} is missing",
            file=file,
            remedy=f"{place}name that directory, or bring the file back",
        )

    def _opening(self, raw: bytes, number: int, digest: Digest) -> dict[str, Any]:
        file = self.file_of(number, digest)
        try:
            said = json.loads(raw)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict) or said.get("format") != FORMAT or not isinstance(said.get("previous"), str):
            raise InputError("is no segment of a history: its first line does not say so", file=file)
        if said.get("version") != VERSION:
            problem = f"is of version {said.get('version')}; this release reads version {VERSION}"
            raise InputError(problem, file=file, remedy="read it with the release that wrote it")
        whose = (said.get("plane"), said.get("batch"), said.get("incarnation"))
        if whose != (self.plane, self.batch, self.incarnation):
            problem = f"is a segment of another batch: {whose[1]!r} on plane {whose[0]}, declared as {whose[2]}"
            raise InputError(problem, file=file, remedy=f"bring back the one of {self.batch!r}")
        if said.get("number") != number:
            raise ViolationError(f"{file}: is not segment {number}: it is segment {said.get('number')}")
        return said


def entry_of(line: bytes) -> EntryId:
    """Of which entry a line of an export is."""
    return EntryId(line[_ID].partition(b'"')[0].partition(b"/")[0].decode())


def chain_of(line: bytes) -> str:
    """The chain at a line of an export."""
    return line[_CHAIN].decode("ascii", "replace")


def closing_of(segment: Segment) -> dict[str, object]:
    """The last line's object."""
    return {
        "last": segment.last,
        "entries": segment.entries,
        "lines": segment.lines,
        "head": segment.head,
        "digest": segment.digest,
    }
