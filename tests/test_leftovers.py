"""What killed attempts leave on the disk, and what runs leave that have ended."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bus.types import BatchId, ConsumerId, Gen, RunId
from tests.stage import Stage, stage
from tests.suites import MINIMAL
from workers.processes.leftovers import clear_leftovers
from workers.workspace import directory_of, discard, make_directory

__all__ = ["stage"]

HOST = socket.gethostname()
OWN = ConsumerId("worker-of-this-test")


def gone() -> int:
    """The id of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def attempt(top: Path, consumer: str) -> Path:
    """A directory that an attempt left, with something in it that nobody may read."""
    made = directory_of(top / consumer, BatchId("b"), RunId("a#1"), Gen(1))
    (made / "closed").mkdir(parents=True)
    (made / "closed" / "file").write_text("x")
    (made / "closed").chmod(0)
    return made


def cleared(top: Path) -> set[str]:
    clear_leftovers(top, OWN).join(10)
    return {folder.name for folder in top.iterdir()}


def test_what_a_dead_process_of_this_host_left_is_removed(tmp_path: Path) -> None:
    """Its attempts were taken over by others, under names of their own: nobody would ever look there again."""
    for name in (f"worker-{HOST}-{gone()}-0a1b2c", f"scorer-{HOST}-{gone()}-1", OWN):
        attempt(tmp_path, name)
    assert cleared(tmp_path) == set()


@pytest.mark.parametrize(
    "name",
    [f"worker-{HOST}-{os.getpid()}-1", f"worker-elsewhere-{2**22 + 1}-1", "by-hand", f"worker-{HOST}-0-1"],
    ids=["alive", "of another host", "named by hand", "no process"],
)
def test_what_may_still_be_used_stays(tmp_path: Path, name: str) -> None:
    """A process that lives, one of another host on a shared disk, a name that somebody gave."""
    attempt(tmp_path, name)
    assert cleared(tmp_path) == {name}


def test_what_cannot_be_removed_keeps_nobody_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails: it is litter, and the next one tries again."""

    def fails(_: Path) -> None:
        raise OSError("no")

    attempt(tmp_path, OWN)
    with monkeypatch.context() as broken:
        broken.setattr("workers.processes.leftovers.remove_tree", fails)
        assert len(cleared(tmp_path)) == 1
    assert cleared(tmp_path) == set()
    clear_leftovers(tmp_path / "missing", OWN).join(10)


def test_what_the_new_process_makes_under_its_own_name_is_not_removed(tmp_path: Path) -> None:
    """It begins at once, while what its predecessor left is still being removed."""
    attempt(tmp_path, OWN)
    clearing = clear_leftovers(tmp_path, OWN)
    made = attempt(tmp_path, OWN)
    clearing.join(10)
    assert made.is_dir()
    assert [folder.name for folder in tmp_path.iterdir()] == [OWN]


@pytest.mark.parametrize("table", ["", "[workspace]\n"], ids=["scratch", "workspace"])
async def test_a_batch_leaves_no_directory_behind(stage: Stage, table: str) -> None:
    """A run left its own, empty: a million of them, in the end."""
    agent = "async def solve(case, run):\n    await run.workspace.write('f', 'x')\n    return str(case.input)\n"
    toml = 'lease = "300ms"\n' + MINIMAL.replace('command = ["cat"]', 'python = "agent.py:solve"') + table
    await stage.declare(toml, agent_DOT_py=agent)
    stage.planner()
    stage.worker()
    stage.scorer()
    await stage.closed()
    for process in stage.processes[1:]:
        await process.stopped()
    assert list((stage.root / "work").iterdir()) == []


def test_a_run_that_begins_while_another_ends_finds_its_directory(tmp_path: Path) -> None:
    """The one that ends removes what it left empty, the other had just seen it there."""
    failed: list[OSError] = []

    def attempts(run: str) -> None:
        for gen in range(300):
            folder = directory_of(tmp_path, BatchId("b"), RunId(run), Gen(gen))
            try:
                make_directory(folder)
                (folder / "file").touch()
                discard(folder, tmp_path)
            except OSError as error:
                failed.append(error)

    threads = [threading.Thread(target=attempts, args=(run,)) for run in ("a#1", "b#1", "c#1")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
