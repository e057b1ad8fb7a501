"""Files with a history: plain or compressed, and `-` for standard input and output.

What is read is told from its first bytes, not from its name: an archive keeps its content when somebody renames it.
What is written is told by the name, `.jsonl` or `.jsonl.zst`, and is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from bus.errors import InputError
from workers.files import check_writable, writing_whole

__all__ = ["LONGEST_LINE", "check_target", "is_history", "reading", "writing"]

LONGEST_LINE = 64 << 20
"""Bytes of one line: far above what one entry can hold. What is read with `readline` should be given it as its limit."""
_STANDARD = "-"
_SUFFIXES = (".jsonl", ".json", ".zst")
_FRAME = b"\x28\xb5\x2f\xfd"  # how each frame of Zstandard begins: RFC 8878, 3.1.1
_BLOCK = 1 << 20  # bytes read and compressed at a time
_WINDOW = 128 << 20  # bytes of memory that somebody else's archive may ask for: what the command-line tool grants too


def is_history(named: str) -> bool:
    """Whether what a user named is a file: it is there, or its name is none that a batch would have."""
    if named == _STANDARD:
        return True
    with contextlib.suppress(OSError, ValueError):  # too long for a file's name, or no name at all
        if Path(named).is_file():
            return True
    return "/" in named or named.endswith(_SUFFIXES)


@contextlib.contextmanager
def reading(file: str | Path) -> Iterator[BinaryIO]:
    """The lines of a history. Raises InputError when it cannot be read, also within the block.

    An archive that was cut off ends early, as a plain file does: whoever reads the lines sees that the last one is
    missing.
    """
    import zstandard  # noqa: PLC0415 - for those who have a file to read

    name = "standard input" if str(file) == _STANDARD else str(file)
    try:
        with _opened(file) as raw:
            if raw.peek(len(_FRAME))[: len(_FRAME)] != _FRAME:
                yield cast(BinaryIO, raw)
                return
            unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
            with unpacker.stream_reader(raw, read_size=_BLOCK, read_across_frames=True) as frames:
                yield cast(BinaryIO, io.BufferedReader(frames, _BLOCK))
    except zstandard.ZstdError as error:
        raise InputError(f"is damaged: it cannot be unpacked ({error})", file=name, remedy="export it again") from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=name) from error


def check_target(file: Path) -> None:
    """Before anything is computed. Raises InputError when a history cannot be written there."""
    if str(file) != _STANDARD:
        check_writable(file)


@contextlib.contextmanager
def writing(file: Path) -> Iterator[BinaryIO]:
    """A file that takes its place when the block ends; compressed where its name ends in `.zst`. Raises InputError."""
    with _standard_output() if str(file) == _STANDARD else writing_whole(file) as out:
        if file.suffix != ".zst":
            yield out
            return
        import zstandard  # noqa: PLC0415

        # The checksum is the archive's own: a damaged disk is told from an edited history.
        packer = zstandard.ZstdCompressor(level=9, write_checksum=True)
        with packer.stream_writer(out, closefd=False) as packed:
            yield cast(BinaryIO, packed)


def _opened(file: str | Path) -> contextlib.AbstractContextManager[io.BufferedReader]:
    if str(file) == _STANDARD:
        return contextlib.nullcontext(cast(io.BufferedReader, sys.stdin.buffer))
    return Path(file).open("rb", buffering=_BLOCK)


@contextlib.contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # whoever read it has seen enough
        raise
    except OSError as error:
        raise InputError(f"standard output cannot be written: {error.strerror}") from error
