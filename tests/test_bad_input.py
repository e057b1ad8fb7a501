"""Bad input: one clear line, the right exit code, no traceback, and nothing started."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from bus.redis_bus import RedisBus
from bus.server import unix_url
from bus.target import Target
from bus.types import BatchId
from tests.batches import FixedDoor
from tests.fleet import Stage, eventually
from tests.servers import Kind, running
from tests.suites import MINIMAL, write_suite
from workers import cli
from workers.batch_spec import spec_of
from workers.runtime import SystemRuntime
from workers.suite import load_suite

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]

FUNCTION = 'cases = "cases.jsonl"\n[solver]\npython = "agent.py:solve"\n[scorer]\nkind = "exact"\n'


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place of the test's own; whatever it starts there must be gone at its end."""
    with Stage.opened(tmp_path) as one:
        yield one


@pytest.fixture
def logging() -> Iterator[None]:
    """The command sets up logging for its process, which here is ours."""
    yield
    structlog.reset_defaults()


def edited(toml: str = MINIMAL, /, **files: str) -> Callable[[Path], list[str]]:
    """`run` of a suite in which these files are different."""
    return lambda place: ["run", str(write_suite(place / "suite", toml, **files))]


def options(*more: str) -> Callable[[Path], list[str]]:
    """`run` of a good suite with these options."""
    return lambda place: [*edited()(place), *more]


def misspelt(name: str) -> Callable[[Path], list[str]]:
    """`run` of what is not there, beside a suite that is."""

    def arguments(place: Path) -> list[str]:
        write_suite(place / "suite", MINIMAL)
        return ["run", str(place / name)]

    return arguments


def no_parquet(place: Path) -> list[str]:
    """`run` of a suite whose Parquet file is none."""
    return edited(MINIMAL.replace("jsonl", "parquet"), **{"cases.parquet": "PAR1 or not"})(place)


@pytest.mark.parametrize(
    ("arguments", "file", "said"),
    [
        (lambda place: ["run", str(place / "nothing")], "nothing", ": no such file or directory"),
        (misspelt("siute"), "siute", ": no such file or directory (did you mean {}/suite?)"),
        (misspelt("nothing"), "nothing", ": no such file or directory (suites there: {}/suite)"),
        (
            edited('cases = "cases.jsonl"\nsolver = "agent.py:solve"\nscorer = {kind = "exact"}\n'),
            "suite/suite.toml",
            ":2: solver: must be a table, it is 'agent.py:solve' (write solver = {python = \"agent.py:solve\"}",
        ),
        (
            edited('cases = "cases.jsonl"\nscorer = {kind = "exact"}\n'),
            "suite/suite.toml",
            ": solver: is missing (write solver = {python",
        ),
        (
            edited(**{"cases.jsonl": '{"id": "a", "input": "1", "expected": "1"}\n'}),
            "suite/cases.jsonl",
            ":1: unknown field 'expected' (put what is your own into metadata, or in the suite: fields = { target",
        ),
        (
            edited('cases = "c.csv"\n' + MINIMAL[21:], **{"c.csv": "id;input;target\na;1;1\n"}),
            "suite/c.csv",
            ":1: has one column, 'id;input;target': its cells are parted by ';' (save it with commas)",
        ),
        (edited('cases = "no.jsonl"\n' + MINIMAL[21:]), "suite/suite.toml", ":1: cases: no such file: no.jsonl"),
        (edited("cases = \n" + MINIMAL), "suite/suite.toml", ":1: invalid TOML: "),
        (edited('qorum = "1%"\n' + MINIMAL), "suite/suite.toml", ":1: qorum: unknown field (did you mean 'quorum'?)"),
        (edited(**{"cases.jsonl": '{"id": "a"}\n{"input": "1"}\n'}), "suite/cases.jsonl", ":2: a case without id"),
        (edited(**{"cases.jsonl": '{"id": "a"}\n\n{"id": "a"}\n'}), "suite/cases.jsonl", ":3: two cases have the id"),
        (edited(**{"cases.jsonl": '{"id": "a"}\n{"id": "b"\n'}), "suite/cases.jsonl", ":2: invalid JSON: "),
        (edited(**{"cases.jsonl": "\n"}), "suite/cases.jsonl", ": holds no case"),
        (edited("quorum = 3\n" + MINIMAL), "suite/suite.toml", ":1: quorum: 3 is more than the number of runs, 2"),
        (edited(MINIMAL.replace("exact", "exakt")), "suite/suite.toml", ":5: scorer.kind: unknown kind 'exakt'"),
        (
            edited(FUNCTION, **{"agent.py": "import no_such_module\n"}),
            "suite/suite.toml",
            ":3: solver.python: agent.py does not import: ModuleNotFoundError: No module named 'no_such_module' (li",
        ),
        (no_parquet, "suite/cases.parquet", ": is not a Parquet file: "),
        (options("--json", "no/out.json"), "no/out.json", ": its directory does not exist"),
        (options("--json", "."), ".", ": is a directory"),
        (options("--json", "suite/out.json"), "suite/out.json", ": lies in the suite's directory and would be part of"),
        (options("--batch", "a b"), None, "'a b' cannot name a batch"),
        (options("--batch", ".."), None, "'..' cannot name a batch (it begins with a letter, a digit or '_')"),
        (options("--batch=-x"), None, "'-x' cannot name a batch (it begins with"),
        (options("--batch", "b.jsonl"), None, "'b.jsonl' cannot name a batch (commands take .jsonl, .json, .zst for"),
        (options("--batch", ""), None, "'' cannot name a batch"),
        (options("--batch", "b" * 5_000), None, f"'{'b' * 59}…' cannot name a batch"),
        (options("--url", "http://queue"), None, "http://queue: not the URL of a server"),
    ],
    ids=[
        "missing suite", "misspelt suite", "another suite", "a text for a table", "no solver",
        "a field by another name", "semicolons", "missing data", "invalid TOML", "unknown field", "case without id",
        "one id twice", "invalid JSON", "empty data", "quorum", "unknown scorer", "solver does not import",
        "no Parquet", "json directory", "json is a directory", "json in the suite", "batch name",
        "batch that is a path",
        "batch that is an option", "batch that is a file", "no batch name",
        "long batch name", "url",
    ],
)  # fmt: skip
@pytest.mark.usefixtures("logging")
def test_wrong_input_is_one_line_that_names_its_place_and_nothing_is_started(
    arguments: Callable[[Path], list[str]],
    file: str | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Found before anything is spent. Called in this process: an exception that got through would fail the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVALBUS_HOME", str(tmp_path / "home"))
    with pytest.raises(SystemExit) as stop:
        cli.app(arguments(tmp_path))
    out, err = capfd.readouterr()
    assert (stop.value.code, out) == (2, "")
    (line,) = err.splitlines()
    said = said.replace("{}", str(tmp_path))
    place = "" if file is None else file if file.endswith("out.json") or file == "." else str(tmp_path / file)
    assert line.startswith(f"evalbus: {place}{said if file else ''}"), line
    assert said in line
    assert not (tmp_path / "home").exists()
    assert not (tmp_path / "no").exists()


async def test_the_process_says_no_more_than_that_line(stage: Stage) -> None:
    """What the user sees: the line alone, exit 2; no traceback, no home made, nobody left."""
    suite = write_suite(stage.root / "suite", FUNCTION, **{"agent.py": "def solve(case, run) -> str: return 1 +\n"})
    done = await stage.call("run", suite, "--json", "out.json")
    assert (done.code, done.out) == (2, "")
    assert done.complaint.startswith(f"{suite}/suite.toml:3: solver.python: agent.py does not import: SyntaxError: ")
    assert not stage.home.exists()
    assert not (stage.root / "out.json").exists()


@pytest.mark.parametrize("command", ["run", "planner", "worker", "scorer"])
async def test_a_suite_that_never_comes_to_its_end_can_be_interrupted(stage: Stage, command: str) -> None:
    """`while True` in a suite.py: it runs where a Ctrl-C gets through, and nothing waits for it afterwards."""
    loop = "import pathlib\npathlib.Path('began').touch()\nwhile True:\n    pass\n"
    suite = write_suite(stage.root / "suite", None, suite_DOT_py=loop)
    started = stage.start(command, *(["--suite"] if command != "run" else []), suite)

    async def began() -> bool:
        return (stage.root / "began").exists()

    await eventually(began, "the suite to be loaded")
    started.process.send_signal(signal.SIGINT)
    done = await started.end()
    assert (done.code, done.out, done.complaint) == (130, "", "interrupted")
    assert not stage.home.exists()


async def test_what_is_wrong_with_a_batch_is_told_in_one_line(stage: Stage, server: Target) -> None:
    """A name that is not there, with the nearest one; a batch of another suite; a file that cannot be written."""
    url = unix_url(Path(server.path or ""))
    suite = write_suite(stage.root / "suite", MINIMAL)
    bus = RedisBus(FixedDoor(server.address()), SystemRuntime())
    await bus.create(spec_of(load_suite(suite), BatchId("nightly")))
    before = await bus.counters(BatchId("nightly"))
    (suite / "more.txt").write_text("the suite is another one now")
    commands = {
        ("gate", "nigthly"): "no batch 'nigthly' on this server; did you mean nightly?",
        ("status", "nigthly"): "no batch 'nigthly' on this server; did you mean nightly?",
        ("export", "nigthly", "b.jsonl"): "no batch 'nigthly' on this server; did you mean nightly?",
        ("export", "nightly", "no/b.jsonl"): "no/b.jsonl: its directory does not exist (create it, or name another)",
        ("gate", "a:b"): "'a:b' cannot name a batch (letters, digits, '.', '_' and '-', at most 200)",
        ("run", str(suite), "--batch", "nightly"): "batch 'nightly' exists and was made from another suite",
    }
    started = [stage.start(*arguments, "--url", url) for arguments in commands]
    for command, said in zip(started, commands.values(), strict=True):
        done = await command.end()
        assert (done.code, done.out) == (2, ""), done
        assert done.complaint.startswith(said)
    after = await bus.counters(BatchId("nightly"))
    await bus.aclose()
    assert replace(after, refusals={}) == before, "the other suite has changed nothing but the record of its refusal"
    assert not stage.home.exists()
    assert not (stage.root / "b.jsonl").exists()


async def test_a_server_that_cannot_be_used_is_exit_4_and_one_line(stage: Stage) -> None:
    """One that is not there, and one that may drop keys when its memory is full: a lease it forgets is no lease."""
    suite = write_suite(stage.root / "suite", MINIMAL)
    with running(Kind.VALKEY9, {"maxmemory-policy": "allkeys-lru"}) as evicting:
        url = unix_url(Path(evicting.target.path or ""))
        urls = {url: "maxmemory-policy", "unix:///no/server.sock": "/no/server.sock"}
        started = [stage.start("run", suite, "--url", url, "--json", "out.json") for url in urls]
        for command, said in zip(started, urls.values(), strict=True):
            done = await command.end()
            assert (done.code, done.out) == (4, ""), done
            assert said in done.complaint
    assert not stage.home.exists()
    assert not (stage.root / "out.json").exists()
