"""Options that several commands take, each written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bus.types import Durability, Plane

__all__ = [
    "Artifacts",
    "ConsumerName",
    "DurabilityOption",
    "FetchSuite",
    "HomeOption",
    "JsonFile",
    "OnlyBatch",
    "PlaneOption",
    "Slots",
    "SuiteCopy",
    "Url",
]

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="EVALBUS_URL",
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
FetchSuite = Annotated[
    bool,
    typer.Option("--fetch-suite", help="Take the suite from the batch's bundle, signed with EVALBUS_BUNDLE_KEY."),
]
