"""What `evalbus run` and `evalbus rescore` were given, and the command that goes on with it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bus.server_url import parse_url
from bus.types import BatchId, Durability, Plane
from workers.secret_files import glance

__all__ = ["JobOptions", "resume_with"]


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What the command line was given."""

    suite: Path
    workers: int | None
    """None: one a core."""
    scorers: int | None
    """None: two."""
    url: str | None
    home: Path | None
    plane: Plane
    batch: str | None
    json_file: Path | None
    artifacts: str | None
    durability: Durability = Durability.STANDARD
    source: BatchId | None = None
    """A closed batch whose sealed runs are scored anew, by this suite's scorer; then no solver runs."""
    archive: Path | None = None
    """To which the history goes while the batch runs."""
    segment: int | None = None
    """Entries in one file there; None: as many as is usual."""
    limit: int | None = None
    """Of the suite's cases, the first ones only; None: all, or those that the batch was made with."""
    cases: Sequence[str] = ()
    """Likewise, these only."""


def resume_with(options: JobOptions, name: BatchId) -> str:
    """`resume with: evalbus run … --batch <name>`, with what was given, and no password."""
    words = ["evalbus", "run", str(options.suite), "--batch", name]
    if options.source is not None:
        words = ["evalbus", "rescore", options.source, "--judge", str(options.suite), "--batch", name]
    words += ["--plane", options.plane.value] if options.plane is not Plane.LIVE else []
    given = {
        "--workers": options.workers if options.source is None else None,
        "--scorers": options.scorers,
        "--json": options.json_file,
        "--artifacts": options.artifacts,
        "--archive": options.archive,
        "--segment": options.segment,
        "--limit": options.limit,
        "--home": options.home if str(options.home) != os.environ.get("EVALBUS_HOME") else None,
    }
    words += [word for case in options.cases for word in ("--case", case)]
    for option, value in given.items():
        words += [] if value is None else [option, str(value)]
    secret = ""
    if options.url and options.url != glance("EVALBUS_URL"):
        target = parse_url(options.url)
        words += ["--url", target.redacted]
        secret = " (with the password for ***)" if target.redacted != target.url else ""
    return f"resume with: {shlex.join(words)}{secret}"
