"""`evalbus top`: what the terminal shows, through Textual's pilot on a real server, and once in a real terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from dataclasses import replace
from fcntl import ioctl
from pathlib import Path

import pytest
from textual.widgets import DataTable

from bus.chain import EMPTY_HEAD
from bus.held_loops import HeldLoop, note_held_loop
from bus.port import NextRuns
from bus.redis_bus import RedisBus
from bus.server import unix_url
from bus.target import Target
from bus.types import RunId
from tests.batches import P1, W2, Batch, FixedDoor
from tests.fleet import Stage
from tests.screens import Seat, seated
from tests.servers import RealServer, running
from tests.waiting import PATIENCE
from workers.runtime import SystemRuntime
from workers.watching.looking import Watcher
from workers.watching.top import BatchScreen, Flow, Help, ListScreen, RunScreen, Top


async def test_the_list_leads_to_a_batch_and_back(server: Target) -> None:
    """Enter opens it, escape leaves it, and the list is the one that was left."""
    async with seated(server) as seat:
        await seat.sees("0/3")
        first = seat.app.screen
        await seat.pilot.press("enter")
        await seat.until(lambda: isinstance(seat.app.screen, BatchScreen), "the batch's screen")
        await seat.sees("0 of 3 runs have ended")
        await seat.pilot.press("escape")
        await seat.until(lambda: seat.app.screen is first, "the list that was left")


async def test_the_screen_follows_the_batch_until_it_has_closed(server: Target) -> None:
    """Progress while it is open, and nothing that could be taken for a pass rate; then the closed number."""
    async with seated(server, begin_with_it=True) as seat:
        await seat.sees("0 of 3 runs have ended")
        await seat.batch.scored()
        await seat.sees("1 of 3 runs have ended")
        assert "progress, not a pass rate" in seat.text
        assert "pass rate 1" not in seat.text
        await seat.batch.scored()
        await seat.batch.bus.hole((await seat.batch.claimed()).ref, "solver_error", "it raised")
        await seat.sees("1 solver_error  the solver raised an error")
        snapshot = await seat.batch.closed()
        await seat.sees("pass rate 1.0000   2 of 2 scored runs passed")
        assert f"snapshot {snapshot.snapshot_id}" in seat.text


async def test_who_holds_what_and_who_was_refused_lead_to_the_run_in_words(server: Target) -> None:
    """Enter on a row explains its run."""
    async with seated(server, begin_with_it=True) as seat:
        held = await seat.batch.claimed()
        await seat.batch.claimed(W2, await seat.batch.taken(held.entry, W2))
        await seat.batch.bus.append(held.ref, EMPTY_HEAD, 1, ["late"])
        await seat.sees("W w2  c0#1  2  2")
        await seat.sees("c0#1  generation 1  transcript.append  stale_gen  a newer generation holds the run")
        seat.app.screen.query_one("#latest").focus()
        await seat.pilot.press("enter")
        await seat.until(lambda: isinstance(seat.app.screen, RunScreen), "the run's screen")
        await seat.sees("worker w1, generation 1: fell silent, and was preempted")
        await seat.pilot.press("escape")
        await seat.until(lambda: isinstance(seat.app.screen, BatchScreen), "the batch's screen")


async def test_a_line_that_holds_its_workers_loop_is_named_while_it_does(server: Target) -> None:
    """All that is seen of it otherwise is a worker that falls silent, again and again."""
    async with seated(server, begin_with_it=True) as seat:
        bus, held = seat.batch.bus, HeldLoop("w1", 5.0, "[agent].py:8")
        ref = (await seat.batch.claimed()).ref
        await note_held_loop(bus, ref.batch, ref.run, held)
        await seat.sees("! c0#1 at w1: its solver blocked the event loop for over 5 s at [agent].py:8: use asyncio")


async def test_the_cursor_stays_on_its_row_when_others_come_and_go(server: Target) -> None:
    """Whoever is about to press enter must not open another run because one has ended."""
    async with seated(server, begin_with_it=True) as seat:
        first = await seat.batch.claimed()
        second = await seat.batch.claimed()
        table = seat.app.screen.query_one("#holds", DataTable)
        await seat.until(lambda: table.row_count == 2, "both runs")
        table.focus()
        await seat.pilot.press("down")
        await seat.until(lambda: table.cursor_row == 1, "the cursor on the second")
        await seat.batch.claimed()
        await seat.until(lambda: table.row_count == 3, "a third run")
        assert table.get_row_at(table.cursor_row)[1].plain == second.ref.run
        await seat.batch.seal(first)
        await seat.until(lambda: table.row_count == 2, "the first to be gone")
        assert table.get_row_at(table.cursor_row)[1].plain == second.ref.run


async def test_the_server_may_go_away_and_come_back() -> None:
    """A line says so, what was seen stays, and the line goes by itself."""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(running())
        data = first.directory
        batch = await Batch.open(first.target.address(), runs=2)
        stack.callback(batch.wire.close)
        quick = impatient(batch, first.target)
        await batch.admit()
        app = Top(Watcher(quick.bus), batch=batch.name)
        async with app.run_test(size=(120, 40)) as pilot:
            seat = Seat(app, pilot, quick)
            await seat.sees("0 of 2 runs have ended")
            first.process.kill()
            first.process.wait()
            await seat.until(lambda: seat.app.screen.query_one("#trouble").display, "a line about the server")
            assert "0 of 2 runs have ended" in seat.text
            stack.enter_context(running(directory=data))
            await seat.until(lambda: not seat.app.screen.query_one("#trouble").display, "the line to go")
        await quick.bus.aclose()
        await batch.bus.aclose()


def impatient(batch: Batch, where: Target) -> Batch:
    """The same batch, seen through a bus that gives up soon."""
    return replace(batch, bus=RedisBus(FixedDoor(where.address()), SystemRuntime(), patience=0.2))


async def test_what_others_wrote_is_shown_and_not_obeyed(server: Target) -> None:
    """Brackets are markup in a terminal toolkit: a run named so must not colour, hide or link anything."""
    name = RunId("[red]x[/red] [@click=app.quit]y[/]#1")
    async with seated(server, begin_with_it=True, admitted=False, runs=1) as seat:
        await seat.batch.bus.admit(seat.batch.name, NextRuns(0, [name], [], P1, "candidate", "judge"))
        await seat.batch.claimed()
        await seat.sees(f"W w1  {name}")


async def test_the_keys_are_told_and_quit_works(server: Target) -> None:
    """Help over any screen, closed by the same key; then the end."""
    async with seated(server) as seat:
        await seat.sees("0/3")
        await seat.pilot.press("question_mark")
        await seat.until(lambda: isinstance(seat.app.screen, Help), "the help")
        await seat.sees("another row")
        await seat.pilot.press("question_mark")
        await seat.until(lambda: isinstance(seat.app.screen, ListScreen), "the list")
        await seat.pilot.press("q")
        await seat.until(lambda: not seat.app.is_running or seat.app._exit, "the end")


@pytest.mark.parametrize("width", [50, 80, 160])
async def test_nothing_is_lost_on_a_narrow_terminal(server: Target, width: int) -> None:
    """Beside each other where there is room, below each other where there is none."""
    async with seated(server, begin_with_it=True, width=width) as seat:
        await seat.batch.claimed()
        await seat.sees("W w1  c0#1")
        crowd, side = seat.app.screen.query_one("#crowd"), seat.app.screen.query_one("#side")
        beside = crowd.region.y == side.region.y
        assert beside == (width >= 100)
        assert side.region.right <= width


@pytest.mark.parametrize("width", [34, 50, 80, 120])
async def test_no_figure_is_parted_from_its_name_at_the_end_of_a_line(server: Target, width: int) -> None:
    """The bar's legend and the facts below it are broken between two of them, and are as high as they need be."""
    async with seated(server, begin_with_it=True, width=width, limits={"budget": 1_000_000}) as seat:

        def seen() -> list[str]:
            drawn = [seat.app.screen.query_one(name, Flow) for name in ("#legend", "#facts")]
            lines = [each.render_line(number).text for each in drawn for number in range(each.size.height)]
            return [item for line in lines for item in line.rstrip().split("   ")]

        items = [
            "█ 0 scored", "▚ 0 holes", "▓ 0 being scored", "▒ 0 sealed, wait for a scorer", "░ 0 running",
            "· 3 wait for a worker", "□ 0 not admitted yet", "runs/min -", "in flight 3 of 64", "workers 0",
            "scorers 0", "quorum 1", "tokens 0 of 1,000,000", "durable 0", "reserved 0",
        ]  # fmt: skip
        await seat.until(lambda: seen() == items, "every item in one piece")


def test_in_a_real_terminal_it_draws_and_leaves_the_terminal_as_it_was(valkey: RealServer) -> None:
    """A pseudo-terminal, the real command, `q`: the alternate screen is left, and the exit code is 0."""
    with valkey.client() as client:
        client.flushall()
    main, other = pty.openpty()
    ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    assert valkey.target.path is not None
    url = unix_url(Path(valkey.target.path))
    process = subprocess.Popen(
        [sys.executable, "-m", "workers.cli", "top", "--url", url], stdin=other, stdout=other, stderr=other,
        env=os.environ | {"TERM": "xterm-256color"}, start_new_session=True,
    )  # fmt: skip
    os.close(other)
    try:
        drawn = read_until(main, b"No batches on this server yet")
        os.write(main, b"q")
        drawn += read_until(main, b"\x1b[?1049l")
        assert b"\x1b[?1049h" in drawn
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)


def read_until(terminal: int, words: bytes) -> bytes:
    """What is drawn until these words have come."""
    seen, deadline = b"", time.monotonic() + 60
    while words not in seen:
        assert time.monotonic() < deadline, seen[-2000:]
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # the other end was closed
                break
    assert words in seen, seen[-2000:]
    return seen


def test_with_its_drawing_sent_to_a_file_it_says_so_instead(tmp_path: Path) -> None:
    """`top 2> errors`: the toolkit draws on standard error, so the terminal would stay dark, and `errors` fill up."""
    main, other = pty.openpty()
    try:
        with (tmp_path / "errors").open("w+") as errors:
            done = subprocess.run(
                [sys.executable, "-m", "workers.cli", "top"], stdin=other, stdout=other, stderr=errors, check=False,
                env=os.environ | {"TERM": "xterm-256color"}, start_new_session=True, timeout=60,
            )  # fmt: skip
            errors.seek(0)
            said = "evalbus: top needs a terminal (elsewhere: evalbus status)\n"
            assert (done.returncode, errors.read()) == (2, said)
    finally:
        os.close(main)
        os.close(other)


@pytest.mark.process
async def test_without_a_terminal_it_says_what_to_use_instead(tmp_path: Path) -> None:
    """In a log there is nothing to draw on."""
    with Stage.opened(tmp_path / "stage") as stage:
        done = await stage.call("top")
    assert (done.code, done.complaint) == (2, "top needs a terminal (elsewhere: evalbus status)")
