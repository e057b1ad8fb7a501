"""The commands about histories: write one, derive it again, explain what is in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bus.types import Plane
from workers.cli.common import console, guard, quiet_logs, with_bus
from workers.cli.options import HomeOption, PlaneOption, Url

if TYPE_CHECKING:
    from workers.explaining.reading import Told

__all__ = ["explain", "export", "replay", "why"]


def export(
    batch: Annotated[str, typer.Argument(help="The batch.")],
    file: Annotated[Path, typer.Argument(help="Where to; '-' is standard output.")],
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Write a batch's history as chained JSON lines.

    evalbus export nightly nightly.jsonl
    """
    from workers.exporting import export_batch  # noqa: PLC0415
    from workers.job import batch_name  # noqa: PLC0415

    quiet_logs()
    written = with_bus(lambda bus: export_batch(bus, batch_name(batch), file), url, home, plane)
    print(f"{written} lines of history in {file}", file=sys.stderr)


def replay(
    history: Annotated[str, typer.Argument(help="A file that `export` wrote ('-': standard input), or a batch.")],
    head: Annotated[str | None, typer.Option(help="The chain's head, as it was written down elsewhere.")] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Derive every decision of a history again, and compare: exit 5 names the first entry that differs.

    evalbus replay nightly.jsonl
    """
    from workers.job import batch_name  # noqa: PLC0415
    from workers.replaying import is_file, replay_batch, replay_file, show  # noqa: PLC0415

    quiet_logs()
    if is_file(history):
        found = guard(lambda: replay_file(history, head))
    else:
        found = with_bus(lambda bus: replay_batch(bus, batch_name(history), head), url, home, plane)
    guard(lambda: show(found, console()))


def explain(
    batch: Annotated[str, typer.Argument(help="The batch, or a file that `evalbus export` wrote.")],
    run: Annotated[str, typer.Argument(help="The run, CASE#TRIAL.")],
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As Mermaid text.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write it to FILE.svg, FILE.html or FILE.mmd.")
    ] = None,
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Draw one run as a sequence diagram: who said what to whom, and who was refused.

    evalbus explain nightly "interval_merging#1" -o run.html
    """
    from workers.explaining.command import check_output, show_picture  # noqa: PLC0415

    quiet_logs()
    guard(lambda: check_output(output))
    told = _read(batch, run, url, plane, home)
    guard(lambda: show_picture(told, console(), as_mermaid=mermaid, output=output))


def why(
    batch: Annotated[str, typer.Argument(help="The batch, or a file that `evalbus export` wrote.")],
    run: Annotated[str, typer.Argument(help="The run, CASE#TRIAL.")],
    url: Url = None,
    plane: PlaneOption = Plane.LIVE,
    home: HomeOption = None,
) -> None:
    """Say in words why one run has its verdict: who judged what, who was refused, what was spent.

    evalbus why nightly "interval_merging#1"
    """
    from workers.explaining.command import show_words  # noqa: PLC0415

    quiet_logs()
    told = _read(batch, run, url, plane, home)
    guard(lambda: show_words(told, console()))


def _read(batch: str, run: str, url: str | None, plane: Plane, home: Path | None) -> Told:
    from workers.explaining.reading import file_of, read_file, read_server  # noqa: PLC0415
    from workers.job import batch_name  # noqa: PLC0415

    file = guard(lambda: file_of(batch))
    if file is not None:
        return guard(lambda: read_file(file, run))
    name = guard(lambda: batch_name(batch))
    return with_bus(lambda bus: read_server(bus, name, run), url, home, plane)
