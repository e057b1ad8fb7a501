"""Trees: what is part of their hash and what is not, and copies that cannot be led astray."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.trees import MAX_DEPTH, TreeError, copy_tree, ignored, remove_tree, stays_inside, tree_hash, walk


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small tree with a bit of everything."""
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "src" / "main.py").write_text("print()\n")
    (root / "src-old").write_text("x")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("src/main.py")
    return root


def test_the_walk_is_depth_first_in_byte_order(tree: Path) -> None:
    """A directory comes before what it holds; `src-old` sorts behind `src` and all below it."""
    assert [(entry.name, f"{entry.mode:06o}") for entry in walk(tree)] == [
        ("empty", "040000"),
        ("link", "120000"),
        ("run.sh", "100755"),
        ("src", "040000"),
        ("src/main.py", "100644"),
        ("src-old", "100644"),
    ]


def test_the_hash_is_the_one_that_is_written_down(tmp_path: Path) -> None:
    """Anyone can compute it again from the description; a change of it would orphan every sealed run."""
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").mkdir()
    content, nothing = hashlib.sha256(b"1").hexdigest(), hashlib.sha256().hexdigest()
    written = f"evalbus-tree 1\0ignore *.pyc\x00100644 {content} a\x00040000 {nothing} b\0"
    assert tree_hash(tmp_path, ["*.pyc"]) == hashlib.sha256(written.encode()).hexdigest()


def test_times_owners_and_other_modes_are_not_part_of_the_hash(tree: Path) -> None:
    """A tree that was copied elsewhere is the same tree."""
    before = tree_hash(tree)
    os.utime(tree / "src" / "main.py", (1, 1))
    (tree / "src" / "main.py").chmod(0o600)
    (tree / "src").chmod(0o700)
    assert tree_hash(tree) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "src" / "main.py").write_text("print(1)\n"),
        lambda root: (root / "src" / "main.py").rename(root / "src" / "main2.py"),
        lambda root: (root / "src" / "main.py").chmod(0o755),
        lambda root: (root / "empty").rmdir(),
        lambda root: (root / "new").touch(),
        lambda root: ((root / "link").unlink(), (root / "link").symlink_to("src")),
        lambda root: ((root / "link").unlink(), (root / "link").write_text("src/main.py")),
    ],
    ids=["content", "name", "executable", "directory", "new file", "link text", "link to file"],
)
def test_everything_else_is(tree: Path, change: Callable[[Path], object]) -> None:
    """Paths, kinds, the executable bit, contents."""
    before = tree_hash(tree)
    change(tree)
    assert tree_hash(tree) != before


def test_the_ignore_list_is_part_of_the_hash(tree: Path) -> None:
    """Two scorers that left different things out must not agree by accident."""
    assert tree_hash(tree, ["*.log"]) != tree_hash(tree)


def test_ignored_files_may_come_and_go(tree: Path) -> None:
    """Also whole directories, at any depth."""
    before = tree_hash(tree, ["__pycache__", "*.pyc"])
    (tree / "src" / "__pycache__").mkdir()
    (tree / "src" / "__pycache__" / "main.txt").touch()
    (tree / "x.pyc").touch()
    assert tree_hash(tree, ["__pycache__", "*.pyc"]) == before


@pytest.mark.parametrize(
    ("path", "pattern", "is_ignored"),
    [
        ("a/b.log", "*.log", True),
        ("a.log/b", "*.log", True),
        ("a/b.LOG", "*.log", False),
        ("build/x/y", "build/x", True),
        ("a/build/x", "build/x", False),
        ("build/x", "/build/", True),
        ("data/raw/a.csv", "data/*.csv", True),
        ("data.csv", "data/*", False),
    ],
)
def test_patterns(path: str, pattern: str, is_ignored: bool) -> None:
    """Without `/` a pattern is for names, with `/` for paths from the top; a directory takes all below it along."""
    assert ignored(path, [pattern]) is is_ignored


def test_what_is_no_content_is_left_out_and_does_not_block(tree: Path) -> None:
    """A run may leave a pipe that nobody writes to, or the socket of a server; opening it would wait for ever."""
    before = tree_hash(tree)
    os.mkfifo(tree / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "socket"))
        (tree / "out").symlink_to("/etc/passwd")
        assert tree_hash(tree) == before


@pytest.mark.parametrize(
    ("path", "link", "inside"),
    [
        (b"a", b"b", True),
        (b"a", b".", True),
        (b"d/a", b"../b", True),
        (b"d/a", b"..", True),
        (b"d/e/a", b"../../x/y", True),
        (b"a", b"..", False),
        (b"d/a", b"../../b", False),
        (b"a", b"/etc", False),
        (b"a", b"b/../c", False),
        (b"d/e/q", b"p/../x", False),
        (b"a", b"", False),
    ],
)
def test_links_that_may_lead_out_are_told(path: bytes, link: bytes, inside: bool) -> None:
    """`..` behind a name climbs out of wherever that name leads, so it is not trusted."""
    assert stays_inside(path, link) is inside


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(["..", ".", "a", "b", "d", "e"]), min_size=1, max_size=4).map("/".join),
        min_size=5,
        max_size=5,
    )
)
def test_links_that_stay_inside_do_however_they_are_chained(
    tmp_path_factory: pytest.TempPathFactory, links: list[str]
) -> None:
    """Whatever set of trusted links a tree holds, following them never leaves it."""
    root = tmp_path_factory.mktemp("tree").resolve()
    (root / "d" / "e").mkdir(parents=True)
    places = ["a", "d/a", "d/b", "d/e/a", "d/e/b"]
    for place, link in zip(places, links, strict=True):
        if stays_inside(place.encode(), link.encode()):
            (root / place).symlink_to(link)
    for place in places:
        assert Path(os.path.realpath(root / place)).is_relative_to(root)


def test_directories_nested_without_end_are_an_error(tmp_path: Path) -> None:
    """A run can make them by mistake; walking them must not end in a traceback."""
    (tmp_path / Path(*["d"] * (MAX_DEPTH + 1))).mkdir(parents=True)
    with pytest.raises(TreeError, match=f"nested more than {MAX_DEPTH} deep"):
        tree_hash(tmp_path)


def test_a_tree_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """One line with the name."""
    with pytest.raises(TreeError, match="none: No such file or directory"):
        tree_hash(tmp_path / "none")


def test_a_copy_is_the_same_tree(tree: Path, tmp_path: Path) -> None:
    """Into a directory that is made for it."""
    copy_tree(tree, tmp_path / "new" / "copy")
    assert tree_hash(tmp_path / "new" / "copy") == tree_hash(tree)


def test_a_copy_leaves_out_what_is_ignored(tree: Path, tmp_path: Path) -> None:
    """A template's caches are not the candidate's."""
    copy_tree(tree, tmp_path / "copy", lambda name: ignored(name, ["src", "*.sh"]))
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["empty", "link", "src-old"]


def test_a_copy_over_another_tree_takes_the_place_of_what_is_there(tmp_path: Path) -> None:
    """A candidate put links and directories where hidden tests go: nothing is written through them."""
    hidden, work, outside = tmp_path / "hidden", tmp_path / "work", tmp_path / "outside"
    (hidden / "tests").mkdir(parents=True)
    (hidden / "tests" / "test_a.py").write_text("real")
    (hidden / "data").write_text("real")
    outside.mkdir()
    (outside / "test_a.py").write_text("mine")
    (work / "data").mkdir(parents=True)
    (work / "data" / "kept").touch()
    (work / "other").write_text("stays")
    (work / "tests").symlink_to(outside)
    copy_tree(hidden, work)
    assert (work / "tests" / "test_a.py").read_text() == "real"
    assert (work / "data").read_text() == "real"
    assert (work / "other").read_text() == "stays"
    assert (outside / "test_a.py").read_text() == "mine"
    (work / "data").unlink()
    (work / "data").symlink_to(outside / "test_a.py")
    copy_tree(hidden, work)
    assert (outside / "test_a.py").read_text() == "mine"


def test_a_template_with_a_link_out_of_it_is_refused(tmp_path: Path) -> None:
    """What it names is not in the suite's digest."""
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "out").symlink_to("../secret")
    with pytest.raises(TreeError, match="the link 'out' leads out of"):
        copy_tree(tmp_path / "t", tmp_path / "copy")


def test_a_directory_is_removed_whatever_its_rights(tree: Path) -> None:
    """A run can take its own rights away; its workspace goes nonetheless. Twice is fine."""
    (tree / "src").chmod(0)
    tree.chmod(0o500)
    remove_tree(tree)
    assert not tree.exists()
    remove_tree(tree)


def test_removing_a_tree_does_not_follow_its_links(tree: Path, tmp_path: Path) -> None:
    """What a link names is somebody else's."""
    (tmp_path / "kept").mkdir()
    (tree / "to").symlink_to(tmp_path / "kept")
    remove_tree(tree)
    assert (tmp_path / "kept").is_dir()
