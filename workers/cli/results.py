"""The commands that look at a batch: where it stands, and what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bus.errors import InputError
from bus.types import Plane
from workers.cli.common import console, finish, guard, quiet_logs, with_bus
from workers.cli.options import ArchivedIn, HomeOption, PlaneOption, Url, or_its_file

if TYPE_CHECKING:
    from bus.cluster import ServerBus

__all__ = ["review", "serve", "show", "status", "top"]


def status(
    batch: Annotated[str | None, typer.Argument(help="One batch; default: all.")] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Show what is where: every batch on the server, or one in full.

    evalbus status repair-20260101-120000
    """
    from workers.results.status import show_all, show_one  # noqa: PLC0415

    quiet_logs()

    async def look(bus: ServerBus) -> None:
        screen = console()
        await (show_all(bus, screen) if batch is None else show_one(bus, batch, screen))

    with_bus(look, url, home, plane)


def show(
    batch: Annotated[str, typer.Argument(help="The batch, or a file that `export` wrote ('-': standard input).")],
    run: Annotated[
        str | None, typer.Argument(help="One run, CASE#TRIAL, with its transcript (CASE, if it has one trial).")
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="VERDICT", help="Runs in this bin, or holes for this reason; repeatable."),
    ] = None,
    suite: Annotated[
        Path | None, typer.Option("--suite", help="A copy of the suite, for inputs and targets; default: where it was.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write them here, as JSON lines.")] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            "--beside", metavar="OTHER", help="Runs that came out otherwise in this batch or file, with both."
        ),
    ] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Show what was answered, run by run. Beside verdict and target; of one run, its transcript.

    evalbus show nightly --only fail

    evalbus show nightly --beside released

    evalbus show nightly 'case-7#1'
    """
    from workers.files import check_writable  # noqa: PLC0415
    from workers.histories.history_files import is_history  # noqa: PLC0415
    from workers.results.showing import show_batch, show_run  # noqa: PLC0415
    from workers.results.showing_files import show_file  # noqa: PLC0415

    quiet_logs()

    def check() -> None:
        if run is not None and (only or output is not None or beside is not None):
            raise InputError("--only, --output and --beside are about all runs", remedy="leave out the run")
        if output is not None:
            check_writable(output)

    guard(check)
    if beside is not None:
        _show_beside([batch, beside], only or (), suite, output, url, plane, home)
        return
    if is_history(batch):
        guard(lambda: show_file(batch, run, only or (), suite, output, console()))
        return

    async def look(bus: ServerBus) -> None:
        if run is None:
            await show_batch(bus, batch, only or (), suite, output, console())
        else:
            await show_run(bus, batch, run, suite, console())

    with_bus(look, url, home, plane)


def _show_beside(
    named: Sequence[str],
    only: Sequence[str],
    suite: Path | None,
    output: Path | None,
    url: str | None,
    plane: Plane,
    home: Path | None,
) -> None:
    """Files without a server."""
    from workers.histories.history_files import is_history  # noqa: PLC0415
    from workers.results.beside import show_beside, side_of  # noqa: PLC0415
    from workers.results.showing_files import side_of_file  # noqa: PLC0415

    files = {one: guard(partial(side_of_file, one, suite)) for one in named if is_history(one)}

    async def look(bus: ServerBus) -> None:
        here, there = [files.get(one) or await side_of(bus, one, suite) for one in named]
        await show_beside(here, there, only, output, console())

    if len(files) < len({*named}):
        with_bus(look, url, home, plane)
    else:
        here, there = [files[one] for one in named]
        finish(show_beside(here, there, only, output, console()))


def review(
    batch: Annotated[str, typer.Argument(help="The batch.")],
    runs: Annotated[
        list[str] | None,
        typer.Argument(help="Runs, or cases with one trial, to decide about; none: show those that wait."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Have them judged again, by the judge that is bound.")] = False,
    give_up: Annotated[bool, typer.Option("--give-up", help="End them as the hole `unreviewed`.")] = False,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Show the scores that wait for a person, and decide about them.

    evalbus review nightly 'case-7#1' --again
    """
    from workers.results import reviewing  # noqa: PLC0415

    quiet_logs()

    def check() -> None:
        if runs and again == give_up:
            raise InputError("runs were named, and not what to do with them", remedy="give --again or --give-up")
        if not runs and (again or give_up):
            raise InputError("no run was named", remedy="name the runs: evalbus review BATCH RUN …")

    guard(check)

    async def decide(bus: ServerBus) -> None:
        screen = console()
        if not runs:
            await reviewing.show(bus, batch, screen)
        else:
            await (reviewing.judge_again if again else reviewing.give_up)(bus, batch, runs, screen)

    with_bus(decide, url, home, plane)


def top(
    batch: Annotated[str | None, typer.Argument(help="The batch to begin with; default: the list.")] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
    archive: ArchivedIn = None,
) -> None:
    """Watch batches in the terminal, while they run.

    evalbus top nightly
    """
    from workers.naming import batch_name  # noqa: PLC0415
    from workers.watching.command import check_terminal, look_on, server_name  # noqa: PLC0415

    quiet_logs()
    guard(check_terminal)
    name = None if batch is None else guard(lambda: batch_name(batch))
    with_bus(lambda bus: look_on(bus, name, server_name(url), archive), url, home, plane)


def serve(
    batch: Annotated[str | None, typer.Argument(help="The batch whose page the address leads to.")] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; anything but the loopback asks for a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8378,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="EVALBUS_TOKEN",
            callback=or_its_file,
            help="What browsers must show; default: one is made up where needed.",
        ),
    ] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
    archive: ArchivedIn = None,
) -> None:
    """Show batches in the browser, while they run; read-only.

    evalbus serve nightly --port 0
    """
    from workers.naming import batch_name  # noqa: PLC0415
    from workers.watching.command import ServeOptions, serve_batches, server_name  # noqa: PLC0415

    quiet_logs()
    name = None if batch is None else guard(lambda: batch_name(batch))
    options = ServeOptions(
        batch=name, host=host, port=port, token=token or None, server=server_name(url), archive=archive
    )
    with_bus(lambda bus: serve_batches(bus, options), url, home, plane)
