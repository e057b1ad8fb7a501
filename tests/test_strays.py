"""What a role or a run leaves below itself is ended; what is shared is not. Each test in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no other system tells who is whose child")

ROOT = Path(__file__).parents[1]

BEGIN = """\
import os, signal, subprocess, sys, time
from bus import keeper
from workers.processes import nursery
from workers.processes.strays import Strays

def sleeper(*more, **how):
    return subprocess.Popen(["sleep", "600", *more], **how)

def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)

before = sleeper()
strays = Strays()
"""
END = """
before.kill()
"""


def play(script: str) -> None:
    """Run it; it asserts."""
    code = BEGIN + script + END
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_whole_trees_end_whatever_session_they_are_in_and_what_was_there_before_stays() -> None:
    """A child with a session of its own, and its child, which becomes an orphan only by the first one's end."""
    play("""
child = subprocess.Popen(["sh", "-c", "setsid sleep 600 & echo $!; wait"], start_new_session=True, stdout=-1)
grandchild = int(child.stdout.readline())
strays.kill()
assert not alive(child.pid) and not alive(grandchild)
assert alive(before.pid)
""")


def test_a_starter_ends_what_a_killed_process_below_it_left_behind() -> None:
    """The kernel hands it over: before the end it is let be, as it may be in use."""
    play("""
nursery.adopt_orphans()
killed = subprocess.Popen(["sh", "-c", "setsid sleep 600 & echo $!; wait"], stdout=-1)
orphan = int(killed.stdout.readline())
killed.kill()
killed.wait()
strays.reap([])
strays.reap([])
assert alive(orphan)
strays.kill()
assert not alive(orphan)
""")


def test_orphans_that_end_are_reaped_and_children_that_somebody_waits_for_are_not() -> None:
    """A zombie for each run would use up the process ids; and a stolen exit code would be taken for 0."""
    play("""
nursery.adopt_orphans()
own = subprocess.Popen(["sh", "-c", "exit 7"])
mother = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!"], stdout=-1)
orphan = int(mother.stdout.readline())
mother.wait()
os.kill(orphan, signal.SIGKILL)

def gone():
    strays.reap([own.pid])
    return orphan not in nursery.children()

until(gone)
assert own.wait() == 7
""")


def test_the_keeper_of_the_embedded_server_is_nobodys_stray() -> None:
    """A role that starts the server anew adopts its keeper; other runs use that server."""
    play("""
sham = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", keeper.__file__])
until(lambda: keeper.__file__.encode() in open(f"/proc/{sham.pid}/cmdline", "rb").read())
strays.kill()
assert alive(sham.pid)
sham.kill()
""")
