"""The command line: `evalbus COMMAND …`. Exit codes are those of the design; see the epilog.

Each command imports what it needs when it is called: `evalbus --help` must not pay for all of them.
"""

from __future__ import annotations

from workers.cli import ctrl_c  # isort: skip - before what takes its time

from typing import Annotated

import typer

from workers.cli import checks, convert, gates, histories, in_utf8, results, server, work
from workers.cli.late import late_commands

__all__ = ["COMMANDS", "GROUPS", "app", "main", "server_app"]

GROUPS = {
    "Run": (convert.init, work.run, gates.plan, work.rescore, gates.calibrate, convert.convert),
    "What came out": (
        results.status,
        results.show,
        gates.gate,
        histories.report,
        histories.why,
        histories.explain,
        results.review,
    ),
    "While it runs": (results.top, results.serve),
    "Histories": (histories.export, histories.replay, histories.archive, histories.prune, histories.import_),
    "Roles of a fleet": (work.planner, work.worker, work.scorer),
    "Server and machine": (checks.doctor, checks.bench, checks.lab),
    "Proofs": (checks.verify, checks.conform, checks.chaos, checks.simulate),
}
"""As `evalbus --help` shows them; those of `evalbus server` are its own."""

COMMANDS = tuple(command for group in GROUPS.values() for command in group)

app = typer.Typer(
    cls=late_commands(
        {command.__name__.rstrip("_"): command for command in COMMANDS},
        {title: [command.__name__.rstrip("_") for command in group] for title, group in GROUPS.items()},
        others="Server and machine",
    ),
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
