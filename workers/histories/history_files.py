"""Files with a history: plain or compressed, and `-` for standard input and output.

What is read is told from its first bytes, not from its name: an archive keeps its content when somebody renames it.
What is written is told by the name, `.jsonl` or `.jsonl.zst`, and is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from bus.errors import InputError, ViolationError
from workers.files import check_writable, writing_whole

if TYPE_CHECKING:
    import zstandard
    from _typeshed import WriteableBuffer

__all__ = [
    "LONGEST_LINE",
    "SUFFIXES",
    "check_other",
    "check_target",
    "file_of_part",
    "files_of",
    "is_history",
    "name_of",
    "reading",
    "writing",
]

LONGEST_LINE = 64 << 20
"""Bytes of one line: far above what one entry can hold. Whoever reads with `readline` gives it as the limit."""
_STANDARD = "-"
SUFFIXES = (".jsonl", ".json", ".zst")
_FRAME = b"\x28\xb5\x2f\xfd"  # how each frame of Zstandard begins: RFC 8878, 3.1.1
_BLOCK = 1 << 20  # bytes read and compressed at a time
_PIECE = 1 << 11  # bytes unpacked at a time: four of them may stand for 128 kB, so this is at most 64 MB
_WINDOW = 128 << 20  # bytes of memory that somebody else's archive may ask for: what the command-line tool grants too


def is_history(named: str) -> bool:
    """Whether what a user named is a file: it is there, or its name is none that a batch would have."""
    if named == _STANDARD:
        return True
    with contextlib.suppress(OSError, ValueError):  # too long for a file's name, or no name at all
        if Path(named).is_file():
            return True
    return "/" in named or named.endswith(SUFFIXES)


def file_of_part(file: Path, number: int) -> Path:
    """`nightly.jsonl.zst` is `nightly.p1.jsonl.zst` for the first partition."""
    stem, dot, ending = file.name.partition(".jsonl")
    return file.with_name(f"{stem}.p{number}{dot}{ending}")


def files_of(named: str) -> list[str]:
    """The files of a history that a user named: that one; or where there is none, those of its batch's partitions.

    `export` and `prune` write these as `FILE.p1.jsonl` and so on. Raises InputError where one of them is missing.
    """
    file = Path(named)
    if named == _STANDARD or file.exists() or not (first := file_of_part(file, 1)).is_file():
        return [named]
    found = [file_of_part(file, number) for number in range(1, _parts_in(first) + 1)]
    for one in found:
        if not one.is_file():
            raise InputError(
                f"is missing: the batch was kept in {len(found)} partitions, and {named} means all of their files",
                file=one,
                remedy=f"bring it there, or name one: {first}",
            )
    return [str(one) for one in found]


def _parts_in(first: Path) -> int:
    """Of how many partitions this is the first, by the entry that declares it. Whether it is true, a replay says."""
    with reading(first) as lines, contextlib.suppress(KeyError, TypeError, ValueError):
        while raw := lines.readline(LONGEST_LINE):
            if b'"fence":"run","op":"create","verb":"commit"' in raw:
                return int(json.loads(json.loads(raw)["envelope"]["spec"])["part"]["of"])
    return 1


def name_of(file: str | Path) -> str:
    """How messages name it."""
    return "standard input" if str(file) == _STANDARD else str(file)


@contextlib.contextmanager
def reading(file: str | Path) -> Iterator[BinaryIO]:
    """The lines of a history. Raises InputError when it cannot be read, also within the block.

    A plain file that was cut off ends early: whoever reads the lines sees that the last one is missing. An archive that
    was cut off or damaged is an InputError behind the last line that could be unpacked, and names the next one. Damage
    that unpacks, to something else, is one in place of the ViolationError that the block finds there.
    """
    name = name_of(file)
    try:
        with _opened(file) as raw:
            if raw.peek(len(_FRAME))[: len(_FRAME)] == _FRAME:
                unpacked = _Unpacked(raw, name)
                lines = io.BufferedReader(unpacked, _BLOCK)  # closes `unpacked` when nobody has it any more
                try:
                    yield cast(BinaryIO, lines)
                except ViolationError:
                    unpacked.check_rest()
                    raise
            else:
                yield cast(BinaryIO, raw)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in its name
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}", file=name) from error


class _Unpacked(io.RawIOBase):
    """The content of an archive, unpacked as it is read. Memory: one piece, and the window that the archive needs."""

    def __init__(self, raw: BinaryIO, name: str) -> None:
        import zstandard  # noqa: PLC0415 - for those who have an archive to read

        super().__init__()
        self._raw, self._name = raw, name
        self._unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed, self._ready = b"", memoryview(b"")
        self._lines = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._ready:
            self._packed = self._packed or self._raw.read(_PIECE)
            if not self._packed:
                if self._frame is not None:
                    raise self._unusable("is truncated: the archive was cut off, and this line cannot be unpacked")
                return 0
            self._ready = memoryview(self._unpack())
        into = memoryview(buffer).cast("B")
        count = min(len(into), len(self._ready))
        into[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def check_rest(self) -> None:
        """Read to the end, where the checksum stands. Raises InputError when the content is not what was packed."""
        while self.read(_BLOCK):
            pass

    def _unpack(self) -> bytes:
        """What the piece at hand holds. An archive may have several frames: `cat a.zst b.zst` makes one."""
        import zstandard  # noqa: PLC0415

        frame = self._frame or self._unpacker.decompressobj()
        try:
            content = frame.decompress(self._packed)
        except zstandard.ZstdError as error:
            raise self._unusable(f"is damaged: from this line on it cannot be unpacked ({error})") from error
        self._packed = frame.unused_data
        self._frame = None if frame.eof else frame
        self._lines += content.count(b"\n")
        return content

    def _unusable(self, problem: str) -> InputError:
        return InputError(problem, file=self._name, line=self._lines + 1, remedy="export it again")


def check_other(history: str, output: Path) -> None:
    """Raise InputError where `output` would take the place of the history it is made from: it may be the only copy."""
    for one in files_of(history):
        source = Path("/dev/stdin" if one == _STANDARD else one)
        with contextlib.suppress(OSError, ValueError):  # one of them is not there: they are two
            if source.is_file() and output.samefile(source):
                raise InputError("is the history that this would be made from", file=output, remedy="name another file")


def check_target(file: Path) -> None:
    """Before anything is computed. Raises InputError when a history cannot be written there."""
    if str(file) != _STANDARD:
        check_writable(file)


@contextlib.contextmanager
def writing(file: Path) -> Iterator[BinaryIO]:
    """A file to `write` to, which takes its place when the block ends; compressed where its name ends in `.zst`.

    Raises InputError, also within the block.
    """
    with _standard_output() if str(file) == _STANDARD else writing_whole(file) as out:
        if file.suffix != ".zst":
            yield out
            return
        import zstandard  # noqa: PLC0415

        # The checksum is the archive's own: a damaged disk is told from an edited history.
        packer = zstandard.ZstdCompressor(level=9, write_checksum=True)
        with packer.stream_writer(out, closefd=False) as packed:
            yield cast(BinaryIO, packed)


@contextlib.contextmanager
def _opened(file: str | Path) -> Iterator[io.BufferedReader]:
    if str(file) == _STANDARD:
        yield cast(io.BufferedReader, sys.stdin.buffer)
        return
    with Path(file).open("rb", buffering=_BLOCK) as raw:
        yield cast(io.BufferedReader, raw)


@contextlib.contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        raise
    except OSError as error:
        raise InputError(f"standard output cannot be written: {error.strerror}") from error
