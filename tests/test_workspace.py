"""Workspaces: fresh for each attempt, and nothing that goes through them leads out."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

import workers.workspace
from bus.types import BatchId, Gen, RunId
from tests.suites import MINIMAL, make_suite
from workers.processes.commands import CommandError
from workers.trees import TreeError, tree_hash
from workers.workspace import OutsideWorkspaceError, Workspace, directory_of, prepare

TEMPLATE = MINIMAL + '[workspace]\ntemplate = "programs/{id}"\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty one."""
    path = tmp_path / "work" / "1"
    path.mkdir(parents=True)
    return Workspace(path)


def test_a_fresh_one_is_the_template_of_its_case(tmp_path: Path) -> None:
    """Whatever an attempt that was killed half-way left at the same place is gone."""
    suite = make_suite(
        tmp_path / "suite", TEMPLATE, programs__a__main_DOT_py="x = 1\n", programs__b__main_DOT_py="x = 2\n"
    )
    (tmp_path / "suite" / "programs" / "b" / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "suite" / "programs" / "b" / "run.sh").chmod(0o755)
    (tmp_path / "suite" / "programs" / "b" / "old.pyc").touch()
    place = tmp_path / "work" / "b#1" / "2"
    place.mkdir(parents=True)
    (place / "half").touch()
    made = prepare(suite, suite.cases[1], place)
    assert made.path == place
    assert sorted(path.name for path in place.iterdir()) == ["main.py", "run.sh"]
    assert made.read_text("main.py") == "x = 2\n"
    assert (place / "run.sh").stat().st_mode & 0o100


def test_threads_that_ask_for_it_at_once_find_what_each_of_them_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late one removed an earlier attempt's directory once more, and with it what the first had put there."""
    place = tmp_path / "work"
    place.mkdir()
    workspace = prepare(make_suite(tmp_path / "suite"), make_suite(tmp_path / "suite").cases[0], place)
    removing, may_go_on = threading.Event(), threading.Event()
    remove = workers.workspace.remove_tree

    def slowly(path: Path) -> None:
        if not removing.is_set():
            removing.set()
            may_go_on.wait(20)
        remove(path)

    monkeypatch.setattr(workers.workspace, "remove_tree", slowly)
    threads = [threading.Thread(target=(lambda name: (workspace.path / name).touch()), args=(name,)) for name in "ab"]
    threads[0].start()
    assert removing.wait(20)
    threads[1].start()
    threads[1].join(0.1)  # it waits now; or it has written, to lose it
    may_go_on.set()
    for thread in threads:
        thread.join(20)
    assert sorted(path.name for path in place.iterdir()) == ["a", "b"]


def test_what_is_not_in_the_digest_is_not_in_the_workspace(tmp_path: Path) -> None:
    """A file on the suite's ignore list may differ from machine to machine, and would do so unnoticed."""
    toml = 'ignore = ["*.log", "programs/a/local"]\n' + TEMPLATE
    suite = make_suite(
        tmp_path / "suite",
        toml,
        programs__a__x="",
        programs__a__run_DOT_log="",
        programs__a__local__y="",
        programs__b__local__y="",
    )
    names = [
        sorted(each.name for each in prepare(suite, case, tmp_path / "work").path.iterdir()) for case in suite.cases
    ]
    assert names == [["x"], ["local"]]


def test_one_without_a_template_is_empty(tmp_path: Path) -> None:
    """Declared or not."""
    for toml in (MINIMAL, MINIMAL + "[workspace]\n"):
        suite = make_suite(tmp_path / "suite", toml)
        assert list(prepare(suite, suite.cases[0], tmp_path / "work").path.iterdir()) == []


def test_without_a_table_the_disk_is_left_alone_until_somebody_asks(tmp_path: Path) -> None:
    """What an earlier attempt left there is gone when the path is told, and what this one makes there stays."""
    suite = make_suite(tmp_path / "suite", MINIMAL)
    (place := tmp_path / "work").mkdir()
    (place / "old").touch()
    made = prepare(suite, suite.cases[0], place)
    before = made.is_known
    assert (place / "old").exists()
    assert made.values["workspace"] == str(place)
    assert [before, made.is_known] == [False, True]
    assert not place.exists()
    (made.path / "new").touch()
    assert [each.name for each in made.path.iterdir()] == ["new"]


def test_a_template_that_went_away_is_an_error(tmp_path: Path) -> None:
    """After the suite was checked."""
    suite = make_suite(tmp_path / "suite", TEMPLATE, programs__a__x="", programs__b__x="")
    (tmp_path / "suite" / "programs" / "a" / "x").unlink()
    (tmp_path / "suite" / "programs" / "a").rmdir()
    with pytest.raises(TreeError, match="programs/a: No such file or directory"):
        prepare(suite, suite.cases[0], tmp_path / "work")


async def test_files_are_written_whole_and_read_back(workspace: Workspace) -> None:
    """Text as UTF-8, bytes as they are; directories are made."""
    await workspace.write("src/deep/a.txt", "é\r\n")
    await workspace.write("b.bin", b"\xff")
    assert (workspace.path / "src" / "deep" / "a.txt").read_bytes() == "é\r\n".encode()
    assert workspace.read_bytes("b.bin") == b"\xff"
    with pytest.raises(UnicodeDecodeError):
        workspace.read_text("b.bin")
    with pytest.raises(FileNotFoundError):
        workspace.read_text("none")


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", ".", "", "a/..", "..", "out/x", "out", "up/x"])
async def test_paths_that_lead_out_are_refused(workspace: Workspace, path: str) -> None:
    """Plainly, by `..`, or over a link that an earlier command left: nothing outside is read or written."""
    outside = workspace.path.parent / "outside"
    outside.mkdir()
    (outside / "x").write_text("secret")
    (workspace.path / "a").mkdir()
    (workspace.path / "out").symlink_to(outside)
    (workspace.path / "up").symlink_to("../outside")
    with pytest.raises(OutsideWorkspaceError, match="is not a path inside the workspace"):
        await workspace.write(path, "mine")
    with pytest.raises(OutsideWorkspaceError):
        workspace.read_text(path)
    assert (outside / "x").read_text() == "secret"
    assert sorted(each.name for each in outside.iterdir()) == ["x"]


async def test_links_in_a_circle_lead_nowhere(workspace: Workspace) -> None:
    """A command may leave one; what a solver is told of it is what it is told of every bad path."""
    (workspace.path / "loop").symlink_to("loop")
    for asked in ("loop", "loop/x"):
        with pytest.raises((OutsideWorkspaceError, OSError)):
            await workspace.write(asked, "x")


async def test_a_link_that_stays_inside_is_followed(workspace: Workspace) -> None:
    """Templates may have them."""
    await workspace.write("real", "1")
    (workspace.path / "link").symlink_to("real")
    await workspace.write("link", "2")
    assert workspace.read_text("real") == "2"


async def test_a_workspace_below_a_linked_directory_works(tmp_path: Path) -> None:
    """`/tmp` is a link on some systems: the workspace's own path may hold one."""
    (tmp_path / "real" / "w").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    workspace = Workspace(tmp_path / "link" / "w")
    await workspace.write("a", "1")
    assert (tmp_path / "real" / "w" / "a").read_text() == "1"


async def test_commands_run_in_it_within_the_limits_of_the_suite(tmp_path: Path) -> None:
    """With its home there, the suite's directory in the environment, and placeholders replaced."""
    suite = make_suite(tmp_path / "suite", MINIMAL + '[limits]\noutput = "1kB"\n')
    workspace = prepare(suite, suite.cases[0], tmp_path / "work")
    script = "import os, sys; print(os.getcwd() == os.environ['HOME'], os.environ['EVALBUS_SUITE'], *sys.argv[1:])"
    done = await workspace.run(["{python}", "-c", script, "{id}", "{workspace}", "{suite}", "{other}"])
    assert done.stdout.decode() == f"True {suite.root} a {workspace.path} {suite.root} {{other}}\n"
    assert (await workspace.run(["cat"], stdin="text")).stdout == b"text"
    assert (await workspace.run(["sh", "-c", "echo $EVALBUS_SUITE"], env={"EVALBUS_SUITE": "mine"})).stdout == b"mine\n"
    assert (await workspace.run(["yes"])).truncated
    assert (await workspace.run(["sleep", "60"], timeout=0.05)).timed_out
    with pytest.raises(CommandError):
        await workspace.run(["no-such-program"])


async def test_running_python_leaves_nothing_in_the_tree(tmp_path: Path) -> None:
    """Or a test run would change the tree that it tested."""
    suite = make_suite(tmp_path / "suite")
    workspace = prepare(suite, suite.cases[0], tmp_path / "work")
    await workspace.write("helper.py", "x = 1\n")
    before = tree_hash(workspace.path)
    assert (await workspace.run([sys.executable, "-c", "import helper"])).ok
    assert tree_hash(workspace.path) == before


@pytest.mark.parametrize(
    "run", ["a#1", "a/b#1", "../x#1", ".#1", "A b#1", "é#1", "日本" * 30 + "#1", "x" * 200 + "#1", "a~b#1", ".hidden#1"]
)
def test_every_attempt_has_a_directory_of_its_own(tmp_path: Path, run: str) -> None:
    """Whatever characters an id has, it is one name below the batch's, and never another run's."""
    place = directory_of(tmp_path, BatchId("nightly"), RunId(run), Gen(3))
    assert place.relative_to(tmp_path).parts[::2] == ("nightly", "3")
    assert len(place.relative_to(tmp_path).parts) == 3
    place.mkdir(parents=True)
    assert place.resolve().is_relative_to(tmp_path.resolve() / "nightly")
    others = [run.replace("/", "_"), run.replace(" ", "_"), run + "1", run.swapcase() + "x"]
    assert all(directory_of(tmp_path, BatchId("nightly"), RunId(o), Gen(3)) != place for o in others if o != run)
