"""Packed trees: the same bytes for the same tree, and nothing unpacked that `pack` would not make."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from workers import archives
from workers.archives import pack, unpack
from workers.trees import TreeError, tree_hash


def hostile(*members: tarfile.TarInfo, contents: bytes = b"") -> bytes:
    """A packed tree of exactly these members."""
    buffer = io.BytesIO()
    with tarfile.TarFile(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member in members:
            member.size = len(contents) if member.type in (tarfile.REGTYPE, tarfile.CONTTYPE) else 0
            tar.addfile(member, io.BytesIO(contents))
    return gzip.compress(buffer.getvalue())


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    """A member of a tar."""
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def filled(root: Path) -> Path:
    """A tree with names that are long, strange, and not UTF-8."""
    (root / "deep" / ("d" * 120)).mkdir(parents=True)
    (root / "deep" / ("d" * 120) / ("f" * 200)).write_bytes(os.urandom(1000))
    (root / "naïve\nname").write_text("x")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_text("y")
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o700)
    (root / "deep" / "up").symlink_to("../run")
    (root / "empty").mkdir()
    (root / "none").touch()
    return root


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    """Its hash is the same before, in the packing, and after: that is what a scorer compares."""
    root = filled(tmp_path / "tree")
    packed = pack(root)
    unpack(packed.data, tmp_path / "copy")
    assert packed.tree_hash == tree_hash(root) == tree_hash(tmp_path / "copy")
    assert (tmp_path / "copy" / "run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "copy" / "none").stat().st_mode & 0o777 == 0o644


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    """Times, owners and the order of creation are not in them: an artifact is known by its digest."""
    for name, order in (("one", ["b", "a"]), ("two", ["a", "b"])):
        (tmp_path / name).mkdir()
        for file in order:
            (tmp_path / name / file).write_text(file)
    os.utime(tmp_path / "one" / "a", (1, 1))
    assert pack(tmp_path / "one") == pack(tmp_path / "two")


def test_an_ordinary_tar_reads_it(tmp_path: Path) -> None:
    """For a person who wants to look inside."""
    (tmp_path / "a").write_text("1")
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path).data)) as tar:
        assert [(each.name, each.mtime, each.uid, each.mode) for each in tar] == [("a", 0, 0, 0o644)]


def test_ignored_files_and_links_outwards_are_not_packed(tmp_path: Path) -> None:
    """The scorer's copy has the very hash that was sealed."""
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.pyc").touch()
    (tmp_path / "tree" / "out").symlink_to("/etc")
    packed = pack(tmp_path / "tree", ["*.pyc"])
    unpack(packed.data, tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []
    assert packed.tree_hash == tree_hash(tmp_path / "copy", ["*.pyc"])


def test_a_tree_over_a_limit_is_not_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file of terabytes costs its run, not the worker's memory."""
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**40)
    monkeypatch.setattr(archives, "MAX_BYTES", 10_000)
    with pytest.raises(TreeError, match=r"^the tree holds more than 10000 bytes$"):
        pack(tmp_path)
    (tmp_path / "huge").unlink()
    for n in range(4):
        (tmp_path / str(n)).touch()
    monkeypatch.setattr(archives, "MAX_ENTRIES", 3)
    with pytest.raises(TreeError, match=r"^the tree holds more than 3 entries$"):
        pack(tmp_path)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([member("/etc/x")], "is no path inside a tree"),
        ([member("../x")], "is no path inside a tree"),
        ([member("a", tarfile.DIRTYPE), member("a/../../x")], "is no path inside a tree"),
        ([member("./x")], "is no path inside a tree"),
        ([member("a/x")], "stands in no directory"),
        ([member("a", tarfile.SYMTYPE, "/etc")], "leads out of the tree"),
        ([member("a", tarfile.SYMTYPE, "../..")], "leads out of the tree"),
        ([member("a", tarfile.SYMTYPE, "."), member("a/x")], "stands in no directory"),
        ([member("a"), member("a")], "File exists"),
        ([member("b"), member("a", tarfile.LNKTYPE, "b")], "neither a file, a directory nor a link"),
        ([member("a", tarfile.CHRTYPE)], "neither a file, a directory nor a link"),
        ([member("a", tarfile.FIFOTYPE)], "neither a file, a directory nor a link"),
        ([member("a", tarfile.CONTTYPE)], "neither a file, a directory nor a link"),
        ([member("x" * 300)], "File name too long"),
    ],
)  # fmt: skip
def test_what_pack_would_not_make_is_not_unpacked(tmp_path: Path, members: list[tarfile.TarInfo], said: str) -> None:
    """The worker that sent it ran code that nobody has read."""
    with pytest.raises(TreeError, match=said):
        unpack(hostile(*members, contents=b"owned"), tmp_path / "in" / "side")
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and "side" not in path.parts]
    assert outside == []


def test_an_archive_that_grows_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kB can hold gigabytes of zeros, or a million empty files."""
    monkeypatch.setattr(archives, "_MAX_TAR", 10**6)
    with pytest.raises(TreeError, match="grows beyond 1000000 bytes"):
        unpack(gzip.compress(bytes(10**7)), tmp_path / "a")
    monkeypatch.setattr(archives, "MAX_ENTRIES", 3)
    with pytest.raises(TreeError, match="holds more than 3 entries"):
        unpack(hostile(*(member(str(n)) for n in range(4))), tmp_path / "b")


@pytest.mark.parametrize(
    "data",
    [b"", b"plain text", gzip.compress(b"x" * 2000)],
    ids=[
        "nothing",
        "plain text",
        "compressed",
    ],  # compressed bytes carry the time, and each test process must name the same tests
)
def test_bytes_that_are_no_archive_are_refused(tmp_path: Path, data: bytes) -> None:
    """Foreign or empty: one line."""
    with pytest.raises(TreeError, match="not a packed tree"):
        unpack(data, tmp_path / "a")


def test_an_archive_that_was_cut_or_continued_is_refused(tmp_path: Path) -> None:
    """Half a tree is another tree."""
    data = pack(filled(tmp_path / "tree")).data
    for changed in (data[:-9], data[: len(data) // 2], data + b"more"):
        with pytest.raises(TreeError, match="not a packed tree: it is cut, or followed by something else"):
            unpack(changed, tmp_path / "a")


def test_a_directory_that_holds_something_is_not_unpacked_into(tmp_path: Path) -> None:
    """What lies there would be judged with it."""
    (tmp_path / "old").touch()
    with pytest.raises(TreeError, match="is not empty"):
        unpack(pack(tmp_path).data, tmp_path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(position=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_damaged_archive_is_an_error_and_never_a_crash(
    tmp_path_factory: pytest.TempPathFactory, position: int, flip: int
) -> None:
    """Any byte of the tar changed: a tree that differs, or one line that says so."""
    source = tmp_path_factory.mktemp("source")
    (source / "a").write_text("content")
    (source / "d").mkdir()
    (source / "d" / "l").symlink_to("../a")
    plain = bytearray(gzip.decompress(pack(source).data))
    plain[position % len(plain)] ^= flip
    into = tmp_path_factory.mktemp("into") / "tree"
    try:
        unpack(gzip.compress(bytes(plain)), into)
    except TreeError as error:
        assert "\n" not in str(error)
