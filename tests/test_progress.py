"""What is shown while a batch runs: on a terminal, in a log, and when the reader has gone."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re

import pytest

from bus.port import BatchStatus, Counters
from workers.results.progress import Glance, Pace, Progress


def counters(done: int, *, intended: int = 40, holes: int = 0, status: BatchStatus = BatchStatus.OPEN) -> Counters:
    """A batch of which `done` runs have ended, `holes` of them without a score."""
    return Counters(
        status=status,
        intended=intended,
        quorum=1,
        cursor=intended,
        running=3,
        sealed=2,
        scoring=1,
        scored=done - holes,
        holes=holes,
        in_flight=6,
        bins={"pass": done - holes},
        hole_reasons={"poison": holes},
        refusals={"stale_lease": 4, "not_owner": 1, "bound_full": 49},  # the last one only had to wait
        review=0,
        snapshot_id=None,
        spent=12_345,
    )


class Terminal(io.StringIO):
    """A text stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[str]:
    """What was printed, a line each."""
    return stream.getvalue().splitlines()


def test_a_plain_line_tells_all_and_no_rate() -> None:
    """Done, running, refused, holes, tokens, workers; and nothing that looks like a result."""
    out = io.StringIO()
    with Progress("repair", out) as progress:
        progress.update(counters(7, holes=1), workers=4, scorers=2, now=0.0)
    assert lines(out) == [
        "repair: open 7/40 done · 3 running · 3 being scored · 1 hole · 5 refused · 12,345 tokens"
        " · 4 workers · 2 scorers"
    ]


def test_a_command_that_only_plans_counts_no_workers() -> None:
    """Those of a fleet work elsewhere: "0 workers" would be taken for the reason why nothing happens."""
    out = io.StringIO()
    with Progress("repair", out) as progress:
        progress.update(counters(7), workers=None, scorers=None, now=0.0)
    with Progress("repair", out) as progress:
        progress.update(counters(7), workers=0, scorers=None, now=0.0)
    planned, died = lines(out)
    assert planned.endswith(" · 12,345 tokens")
    assert died == f"{planned} · 0 workers"


def test_a_log_gets_a_line_every_five_seconds() -> None:
    """Ten updates a second for 12 seconds: at 0, 5 and 10, and the last state when it stops."""
    out = io.StringIO()
    with Progress("repair", out) as progress:
        for tick in range(121):
            progress.update(counters(tick // 10), workers=4, scorers=2, now=tick / 10)
    assert [line.split()[2] for line in lines(out)] == ["0/40", "5/40", "10/40", "12/40"]


def test_a_change_of_phase_is_told_at_once() -> None:
    """Open, all ended, closed: each within a second, each with a line. That all are admitted (drained) is no news."""
    out = io.StringIO()
    with Progress("repair", out) as progress:
        for now, done, status in (
            (0.0, 10, BatchStatus.OPEN),
            (0.1, 10, BatchStatus.DRAINED),
            (0.2, 40, BatchStatus.DRAINED),
            (0.3, 40, BatchStatus.CLOSED),
        ):
            progress.update(counters(done, status=status), workers=4, scorers=2, now=now)
    assert [line.split()[1] for line in lines(out)] == ["open", "closing", "closed"]


def test_the_last_state_is_told_once() -> None:
    """What was printed already is not printed again by stopping, nor by stopping twice."""
    out = io.StringIO()
    progress = Progress("repair", out)
    progress.update(counters(3), workers=4, scorers=2, now=0.0)
    progress.stop()
    progress.stop()
    assert len(lines(out)) == 1


def test_a_note_stands_on_its_own_line() -> None:
    """A worker died: that must be readable between the other lines."""
    out = io.StringIO()
    with Progress("repair", out) as progress:
        progress.update(counters(3), workers=4, scorers=2, now=0.0)
        progress.note("worker 3 died (signal 9), started again")
    assert lines(out)[1] == "repair: worker 3 died (signal 9), started again"


def test_a_reader_that_has_gone_does_not_stop_the_batch() -> None:
    """`evalbus run … 2>&1 | head -1`: the pipe breaks at the second line, the evaluation goes on."""
    read, write = os.pipe()
    with os.fdopen(write, "w", buffering=1) as out:
        os.close(read)
        with Progress("repair", out) as progress:
            for second in range(0, 30, 5):
                progress.update(counters(second), workers=4, scorers=2, now=float(second))
            progress.note("still here")
        with pytest.raises(BrokenPipeError):
            out.write("the pipe is really broken\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # so that closing it can flush


def test_a_terminal_is_redrawn_in_place_and_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor that was hidden comes back, the last state stays, whatever ended the run."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    out = Terminal()
    with pytest.raises(KeyboardInterrupt), Progress("repair", out) as progress:
        progress.update(counters(7, holes=1), workers=4, scorers=2, now=0.0)
        progress.update(counters(8, holes=1), workers=4, scorers=2, now=1.0)
        raise KeyboardInterrupt
    text = out.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "8/40 done" in text[text.rindex("7/40 done") :]
    assert text.endswith(("\n", "\x1b[?25h"))


def test_on_a_narrow_terminal_no_figure_is_parted_from_its_noun(monkeypatch: pytest.MonkeyPatch) -> None:
    """`0` at the end of a line and `holes` at the beginning of the next."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    with Progress("repair", out) as progress:
        progress.update(counters(7, holes=1), workers=4, scorers=2, now=0.0)
    assert "\x1b[1m" not in out.getvalue()
    shown = [line.strip() for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "\n", out.getvalue()).splitlines()]
    last = len(shown) - 1 - shown[::-1].index("4 workers · 2 scorers")
    assert [line for line in shown[:last] if line][-2:] == [
        "open · 3 running · 3 being scored", "1 hole · 5 refused · 12,345 tokens",
    ]  # fmt: skip


def test_frames_are_few_however_often_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand updates within a tenth of a second are one frame and the last state."""
    monkeypatch.setenv("TERM", "xterm-256color")
    out = Terminal()
    with Progress("repair", out) as progress:
        for tick in range(1000):
            progress.update(counters(tick // 25), workers=4, scorers=2, now=tick / 10_001)
    assert out.getvalue().count(" running") <= 3
    assert "39/40 done" in out.getvalue()


def test_a_terminal_that_cannot_redraw_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor's shell buffer says `dumb`, and would show escape codes."""
    monkeypatch.setenv("TERM", "dumb")
    out = Terminal()
    with Progress("repair", out) as progress:
        progress.update(counters(3), workers=1, scorers=1, now=0.0)
    assert "\x1b" not in out.getvalue()


def test_a_real_terminal_is_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pseudo-terminal, not a double: the bar is drawn, the title's brackets are not taken for markup."""
    monkeypatch.setenv("TERM", "xterm-256color")
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as out, Progress("a [red] batch", out) as progress:
        progress.update(counters(20), workers=4, scorers=2, now=0.0)
    shown = b""
    with contextlib.suppress(OSError):  # Linux's way to say that all was read, once the other end is closed
        while part := os.read(master, 65536):
            shown += part
    os.close(master)
    text = shown.decode()
    assert "━" in text
    assert "a [red] batch" in text
    assert "20/40 done" in text


def glance(seconds_left: float | None, *, done: int = 3, status: BatchStatus = BatchStatus.OPEN) -> Glance:
    """A moment, of which only the time left matters."""
    return Glance.of(counters(done, status=status), 1, 1, seconds_left)


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.4, "0:00 left"), (65, "1:05 left"), (7389, "2:03:09 left")]
)
def test_time_left_reads_as_a_clock(seconds: float | None, text: str) -> None:
    """Minutes and seconds, hours where there are any, nothing where nothing is known."""
    assert glance(seconds).left == text


def test_nothing_is_left_of_a_batch_that_has_ended() -> None:
    """ "0:00 left" beside 40/40 would be noise."""
    assert glance(0.0, done=40, status=BatchStatus.CLOSED).left == ""


def test_the_pace_of_a_resumed_batch_does_not_count_what_was_done_before() -> None:
    """It starts at 900 of 1000; one run a second since: 90 are left, and 90 seconds."""
    pace = Pace()
    for second in range(11):
        pace.add(float(second), 900 + second)
    assert pace.seconds_left(90) == pytest.approx(90)


def test_the_pace_follows_a_fleet_that_shrinks() -> None:
    """Ten a second from 40 workers, then one from four: after half a minute only the latter counts."""
    pace = Pace()
    done = 0
    for second in range(100):
        done += 10 if second < 50 else 1
        pace.add(float(second), done)
    assert pace.seconds_left(100) == pytest.approx(100, rel=0.1)


def test_slow_runs_widen_the_window() -> None:
    """A run every five minutes: half a minute would hold none, so the last ten runs are the measure."""
    pace = Pace()
    for minute in range(0, 121):
        pace.add(minute * 60.0, minute // 5)
    assert pace.seconds_left(4) == pytest.approx(4 * 300, rel=0.15)


def test_a_stall_makes_the_estimate_grow() -> None:
    """Every worker was taken away: the time left must not stand still at "0:10"."""
    pace = Pace()
    for second in range(31):
        pace.add(float(second), second)
    before = pace.seconds_left(10)
    pace.add(300.0, 30)
    after = pace.seconds_left(10)
    assert before is not None
    assert after is not None
    assert after > 5 * before


def test_nothing_is_estimated_from_one_look() -> None:
    """Neither a division by nought nor a guess; nothing left to do is no time left."""
    pace = Pace()
    pace.add(0.0, 5)
    assert pace.seconds_left(10) is None
    pace.add(10.0, 5)
    assert pace.seconds_left(10) is None
    assert pace.seconds_left(0) == 0.0
