"""What commands write where somebody has no use for codes: a terminal that cannot obey them, a user who wants none."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from fcntl import ioctl

import pytest

from tests.fleet import Stage, case

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks at processes through /proc"),
]

STYLE = re.compile(rb"\x1b\[[0-9;]*m")
QUIET = ({"TERM": "dumb"}, {"TERM": ""}, {"TERM": "xterm-256color", "NO_COLOR": "1"})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The batch `b`, with a hole, and its history. Nobody changes them."""
    with Stage.opened(tmp_path_factory.mktemp("screens")) as one:
        assert one.run("server", "start").code == 0  # or each command would start its own
        suite = one.suite([case("a"), case("broken", solver="raises")], gate="min_pass_rate = 1", quorum=1)
        assert one.run("run", suite, "--workers", 1, "--scorers", 1, "--batch", "b").code == 0
        assert one.run("export", "b", "b.jsonl").code == 0
        yield one
        one.run("server", "stop")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a command wrote on a terminal, both streams."""

    code: int
    drawn: bytes

    @property
    def lines(self) -> list[str]:
        """As a terminal without width shows them."""
        return self.drawn.decode().split("\r\n")


def in_terminal(stage: Stage, *words: str, columns: int = 80, **environment: str) -> Seen:
    """Run a command in a real terminal of so many columns."""
    main, other = pty.openpty()
    ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    decisive = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    inherited = {name: value for name, value in os.environ.items() if name not in decisive}
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.cli", *words], stdin=other, stdout=other, stderr=other, cwd=stage.root,
        env={**inherited, "EVALBUS_HOME": str(stage.home), **environment}, start_new_session=True,
    )  # fmt: skip
    os.close(other)
    drawn = b""
    try:
        while piece := os.read(main, 65_536):
            drawn += piece
    except OSError:  # the other end was closed: it has ended
        pass
    finally:
        os.close(main)
    return Seen(process.wait(60), drawn)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("gate", "b"), "gate       passed   pass_rate >= 1"),
        (("replay", "b.jsonl", "--policy", "job-id"), "job-id"),
        (("worker", "--batch", "b"), "role.ended"),
    ],
    ids=["result", "count", "log"],
)
def test_who_cannot_use_codes_or_wants_none_gets_none(stage: Stage, words: tuple[str, ...], told: str) -> None:
    """NO_COLOR left bold and dim in results; a role's log was coloured on any terminal, whatever it could.

    A terminal that can move its cursor still has a count redrawn in place, in no colour.
    """
    assert STYLE.search(in_terminal(stage, *words, TERM="xterm-256color").drawn)
    for environment in QUIET:
        seen = in_terminal(stage, *words, columns=80, **environment)
        assert (seen.code, STYLE.search(seen.drawn)) == (0, None), seen
        assert any(told in line for line in seen.lines), seen
        assert "NO_COLOR" in environment or b"\x1b" not in seen.drawn, seen


def test_a_count_does_not_stand_among_the_lines_that_are_counted(stage: Stage) -> None:
    """`export b -` on a terminal: what is copied from it is the history, and nothing else."""
    seen = in_terminal(stage, "export", "b", "-", TERM="xterm-256color")
    *lines, last, _ = seen.lines
    assert (seen.code, last) == (0, f"{len(lines) - 2} lines of history on standard output")
    assert lines == (stage.root / "b.jsonl").read_text().splitlines()


def test_a_table_on_a_narrow_terminal_is_not_broken_anywhere(stage: Stage) -> None:
    """Ten columns in forty places were lines broken in the middle of a word; in a file a row is a line."""
    plain = {"TERM": "xterm", "NO_COLOR": "1"}
    assert in_terminal(stage, "status", columns=40, **plain).lines == [
        "b", "  state closed · runs 2 · admitted 2", "  running 0 · sealed 0 · scored 1", "  holes 1 · refused 0",
        "  bins pass 1 · fail 0", "",
    ]  # fmt: skip
    wide = in_terminal(stage, "status", columns=120, **plain).lines
    assert wide[0].split()[:3] == ["batch", "state", "runs"]
    assert stage.run("status").out.splitlines() == wide[:-1]
    assert in_terminal(stage, "show", "b", columns=30, **plain).lines[:2] == ["a#1", "  verdict pass · answer 1"]


@pytest.mark.parametrize(
    ("words", "code"),
    [(("--help",), 0), (("run", "--help"), 0), (("--version",), 0), (("gate", "b", "--min-pass-rate", "1"), 0),
     (("gate", "b", "--max-holes", "0"), 1), (("export", "b", "-"), 0)],
    ids=["help", "help of a command", "version", "gate", "failed gate", "export"],
)  # fmt: skip
def test_whoever_reads_may_leave_early(stage: Stage, words: tuple[str, ...], code: int) -> None:
    """`| head -1`: nothing on standard error, and the exit code says what it always says. The help's was 1."""
    read, written = os.pipe()
    os.close(read)
    try:
        done = stage.start(*words, stdout=written).done()
    finally:
        os.close(written)
    assert (done.code, done.err) == (code, "")
