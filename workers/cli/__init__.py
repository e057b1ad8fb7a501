"""The command line: `evalbus COMMAND …`. Exit codes are those of the design; see the epilog.

Each command imports what it needs when it is called: `evalbus --help` must not pay for all of them.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from workers.cli import checks, histories, results, server, work

__all__ = ["app", "main"]

app = typer.Typer(
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
        print(f"evalbus {version('evalbus')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


for command in (
    work.run,
    work.rescore,
    results.status,
    results.gate,
    results.top,
    results.serve,
    results.review,
    histories.export,
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
):
    app.command()(command)
app.command("import")(histories.import_)
server_app.command("start")(server.server_start)
server_app.command("stop")(server.server_stop)
server_app.command("status")(server.server_status)
app.add_typer(server_app, name="server")


def main() -> None:
    """The entry point."""
    app()
