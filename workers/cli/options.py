"""Options that several commands take, each written once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from bus.types import Durability, Plane
from workers.cli.common import guard

__all__ = [
    "ArchiveTo",
    "ArchivedIn",
    "Artifacts",
    "ConsumerName",
    "DurabilityOption",
    "FetchSuite",
    "HomeOption",
    "JsonFile",
    "MetricsPlace",
    "OnlyBatch",
    "PlaneOption",
    "SegmentSize",
    "Slots",
    "SuiteCopy",
    "Url",
    "or_its_file",
]


def or_its_file(context: typer.Context, asked: typer.CallbackParam, given: str | None) -> str | None:
    """What the option's variable names by a file (`workers.secret_files`), where the option was not given itself."""
    source = context.get_parameter_source(asked.name or "")
    variable = asked.envvar
    if context.resilient_parsing or not isinstance(variable, str) or (source and source.name == "COMMANDLINE"):
        return given
    if not any(os.environ.get(variable + end) for end in ("", "_FILE")):
        return given  # as nearly always: nothing more is imported for `--help`
    from workers.secret_files import secret  # noqa: PLC0415

    return guard(lambda: secret(variable)) or given


Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="EVALBUS_URL",
        callback=or_its_file,
        help="redis://, rediss://, unix://, sentinel:// or redis+cluster://; default: a private server.",
    ),
]
HomeOption = Annotated[
    Path | None,
    typer.Option("--home", envvar="EVALBUS_HOME", help="Directory of the private server; default: .evalbus"),
]
PlaneOption = Annotated[Plane, typer.Option("--plane", help="Which world to write to.")]
DurabilityOption = Annotated[
    Durability,
    typer.Option(
        "--durability",
        envvar="EVALBUS_DURABILITY",
        help="What must survive a power loss or a failover before it counts: nothing, the close, each licence too.",
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the result here, whole or not at all.")]
SuiteCopy = Annotated[
    Path | None,
    typer.Option("--suite", help="This machine's copy of the suite; default: where the batch was made."),
]
OnlyBatch = Annotated[
    str | None, typer.Option("--batch", help="Serve this batch and end with it; default: every open one.")
]
ConsumerName = Annotated[
    str | None, typer.Option("--name", help="Consumer name, unique among live processes; default: made up.")
]
Slots = Annotated[int | None, typer.Option("--slots", min=1, help="Runs driven at a time; default: the suite's.")]
Artifacts = Annotated[
    str | None,
    typer.Option("--artifacts", help="Where large artifacts are kept: a shared directory, or s3://bucket/prefix."),
]
ArchiveTo = Annotated[
    Path | None,
    typer.Option(
        "--archive", help="Archive the history there while the batch runs: the server's memory stays bounded."
    ),
]
ArchivedIn = Annotated[
    Path | None,
    typer.Option("--archive", help="Where the history was archived while the batch ran: archive and stream are read."),
]
SegmentSize = Annotated[
    int | None, typer.Option("--segment", min=2, help="Entries of the history in one archived file; default: 5000.")
]
MetricsPlace = Annotated[
    str | None,
    typer.Option("--metrics", metavar="[HOST:]PORT", help="Serve Prometheus metrics; a port alone: this machine only."),
]
FetchSuite = Annotated[
    bool,
    typer.Option("--fetch-suite", help="Take the suite from the batch's bundle, signed with EVALBUS_BUNDLE_KEY."),
]
