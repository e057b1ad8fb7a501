"""Files with a history: what was written is read back, and what is not all of it is said, with the line."""

from __future__ import annotations

import hashlib
import io
import sys
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
import zstandard

from bus.errors import InputError, ViolationError
from workers.histories.history_files import LONGEST_LINE, check_target, is_history, reading, writing

CONTENT = b"".join(b'{"number":%d}\n' % number for number in range(400))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """The content, compressed."""
    file = tmp_path / "h.jsonl.zst"
    with writing(file) as out:
        for line in CONTENT.splitlines(keepends=True):
            out.write(line)
    assert len(file.read_bytes()) < len(CONTENT) / 4
    return file


def read(file: Path | str) -> bytes:
    """All of it, line by line."""
    with reading(file) as lines:
        return b"".join(iter(lambda: lines.readline(LONGEST_LINE), b""))


def test_what_was_written_is_read_back_whatever_the_file_is_called_now(archive: Path, tmp_path: Path) -> None:
    """An archive keeps its content when somebody renames it, and a plain file does too."""
    plain = tmp_path / "plain.jsonl"
    with writing(plain) as out:
        out.write(CONTENT)
    assert plain.read_bytes() == CONTENT
    assert read(plain) == read(archive) == CONTENT
    assert read(archive.rename(tmp_path / "h.jsonl")) == read(plain.rename(tmp_path / "plain.zst")) == CONTENT


def test_an_archive_may_be_made_of_several(archive: Path) -> None:
    """`cat a.zst b.zst`: the command-line tool reads on behind a frame, and so do we."""
    archive.write_bytes(archive.read_bytes() * 3)
    assert read(archive) == CONTENT * 3


def test_an_archive_is_read_from_standard_input_too(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe cannot be read twice: it is told from its first bytes all the same."""
    for content in (archive.read_bytes(), CONTENT):
        pipe = io.TextIOWrapper(io.BufferedReader(io.BytesIO(content)))
        monkeypatch.setattr(sys, "stdin", pipe)
        assert read("-") == CONTENT


def test_an_archive_that_was_cut_off_anywhere_says_so(archive: Path) -> None:
    """At every byte: also where the last line is there and only the end of its frame is missing."""
    whole, said = archive.read_bytes(), Counter[str]()
    for cut in range(4, len(whole)):
        archive.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"h\.jsonl\.zst:\d+: is truncated: .*\(export it again\)") as caught:
            read(archive)
        said[str(caught.value.line)] += 1
    assert said.keys() == {"1", "401"}  # it is one block: its lines are there together, or not at all


def test_no_byte_of_an_archive_can_be_changed_unseen(archive: Path) -> None:
    """What can be read is what was written, or it is refused: the checksum sees what still unpacks."""
    whole, said = archive.read_bytes(), Counter[str]()
    for at in range(4, len(whole)):
        flipped = bytearray(whole)
        flipped[at] ^= 0x10
        archive.write_bytes(flipped)
        try:
            assert read(archive) == CONTENT  # a bit that nothing depends on
            said["the same"] += 1
        except InputError as error:
            said[error.problem[:12]] += 1
    assert said["is damaged: "] > len(whole) * 0.9
    assert said["the same"] < 10


def test_damage_that_unpacks_is_told_from_an_edit(tmp_path: Path) -> None:
    """A reader meets the line that differs long before the checksum, which stands at the end: it is asked then.

    An archive whose checksum holds was packed with that line in it, and the reader's word stands.
    """
    lines = [b"%s\n" % hashlib.sha256(b"%d" % number).hexdigest().encode() for number in range(10_000)]
    file, found = tmp_path / "h.jsonl.zst", Counter[str]()

    def compare() -> None:
        with reading(file) as content:
            for number, line in enumerate(lines, start=1):
                if content.readline(LONGEST_LINE) != line:
                    found["differs"] += 1
                    raise ViolationError(f"line {number} differs")

    with writing(file) as out:
        out.write(b"".join([*lines[:7], b"edited\n", *lines[8:]]))
    with pytest.raises(ViolationError, match="line 8 differs"):
        compare()
    with writing(file) as out:
        out.write(b"".join(lines))
    whole = file.read_bytes()
    for at in range(1_000, len(whole), len(whole) // 20):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(InputError, match=r"h\.jsonl\.zst:\d+: is damaged"):
            compare()
    assert found["differs"] > 10  # else no damage has got as far as a reader


def test_what_stands_behind_an_archive_is_damage(archive: Path) -> None:
    """It is no frame, and nobody can say what it was."""
    with archive.open("ab") as file:
        file.write(b"more\n")
    with pytest.raises(InputError, match=r"h\.jsonl\.zst:401: is damaged"):
        read(archive)


def test_an_archive_cannot_ask_for_all_the_memory_there_is(tmp_path: Path) -> None:
    """Neither by its window, nor by a few bytes that stand for many: it is unpacked as it is read."""
    file = tmp_path / "zeros.zst"
    with file.open("wb") as out, zstandard.ZstdCompressor(level=1).stream_writer(out) as packed:
        for _ in range(400):
            packed.write(bytes(1 << 20))
    tracemalloc.start()
    with reading(file) as content:
        assert content.read(10) == bytes(10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LONGEST_LINE + (16 << 20)

    wide = zstandard.ZstdCompressionParameters(window_log=28)
    with file.open("wb") as out, zstandard.ZstdCompressor(compression_params=wide).stream_writer(out) as packed:
        packed.write(bytes(1 << 20))
    with pytest.raises(InputError, match="too much memory"):
        read(file)


def test_a_block_that_fails_leaves_no_archive_and_keeps_the_old_one(archive: Path) -> None:
    """Half an archive under its name would be taken for the history."""
    before = archive.read_bytes()
    with pytest.raises(RuntimeError), writing(archive) as out:
        out.write(b"half")
        raise RuntimeError
    assert (archive.read_bytes(), list(archive.parent.iterdir())) == (before, [archive])


def test_a_place_that_will_not_do_is_found_before_anything_is_computed(tmp_path: Path) -> None:
    """Standard output always does."""
    check_target(Path("-"))
    with pytest.raises(InputError, match="its directory does not exist"):
        check_target(tmp_path / "none" / "h.jsonl")


@pytest.mark.parametrize(
    ("named", "answer"),
    [
        ("-", True),
        ("there", True),
        ("missing", False),
        ("missing.jsonl", True),
        ("missing.jsonl.zst", True),
        ("missing.json", True),
        ("some/where", True),
        ("nightly-1.2", False),
        ("x" * 5000, False),
        ("a\0b", False),
    ],
)
def test_a_file_is_told_from_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, answer: bool) -> None:
    """It is there, or its name is none that a batch would have."""
    (tmp_path / "there").touch()
    monkeypatch.chdir(tmp_path)
    assert is_history(named) is answer


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    """With the system's reason; also for what no file can be called."""
    for file, said in (
        (tmp_path / "none.zst", "No such file"),
        (tmp_path, "Is a directory"),
        ("a/\0.zst", "null byte"),
    ):
        with pytest.raises(InputError, match=f"cannot be read: .*{said}"):
            read(file)
