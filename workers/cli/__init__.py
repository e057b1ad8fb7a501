"""The command line: `evalbus COMMAND …`. Exit codes are those of the design; see the epilog.

Each command imports what it needs when it is called: `evalbus --help` must not pay for all of them.
"""

from __future__ import annotations

from workers.cli import ctrl_c  # isort: skip - before what takes its time

from typing import Annotated

import typer

from workers.cli import checks, convert, gates, histories, in_utf8, results, server, work
from workers.cli.late import late_commands

__all__ = ["COMMANDS", "app", "main", "server_app"]

COMMANDS = (
    work.run,
    work.rescore,
    results.status,
    results.show,
    gates.gate,
    gates.plan,
    gates.calibrate,
    results.top,
    results.serve,
    results.review,
    histories.export,
    histories.archive,
    histories.prune,
    histories.replay,
    histories.explain,
    histories.why,
    histories.report,
    work.planner,
    work.worker,
    work.scorer,
    checks.doctor,
    checks.conform,
    checks.verify,
    checks.chaos,
    checks.simulate,
    checks.bench,
    checks.lab,
    histories.import_,
    convert.convert,
)
"""In the order of `evalbus --help`; those of `evalbus server` are its own."""

app = typer.Typer(
    cls=late_commands({command.__name__.rstrip("_"): command for command in COMMANDS}),
    name="evalbus",
    help="Evaluate LLM agents on machines that vanish, and get a pass rate that can be defended.",
    epilog="Exit codes: 0 the gate passed or none is set · 1 it failed · 2 wrong input · 3 inconclusive or open · "
    "4 the server cannot be used · 5 an invariant does not hold · 130 interrupted, resumable.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
server_app = typer.Typer(help="The private server of this directory.", no_args_is_help=True)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # noqa: PLC0415 - it reads with the email package

        print(f"evalbus {version('evalbus')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


server_app.command("start")(server.server_start)
server_app.command("stop")(server.server_stop)
server_app.command("status")(server.server_status)
app.add_typer(server_app, name="server")


def main() -> None:
    """The entry point."""
    ctrl_c.over()
    in_utf8.ensure()
    app()
