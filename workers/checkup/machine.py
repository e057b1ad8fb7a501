"""Judge the machine that the roles would run on: this one."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.filesize import decimal as byte_text

from workers.checkup.findings import Finding, Level

__all__ = ["judge_machine"]

_FILES = 1024
"""Open files that a worker may want: two dozen runs, each with a child process, its pipes and a connection or two."""
_DISK = 2**30
"""Bytes that should be free where batches keep their workspaces and an embedded server its data."""


def judge_machine(home: Path) -> list[Finding]:
    """Open files, processors and the disk below `home`, which need not exist yet."""
    return [*_processors(), *_open_files(), *_disk(home)]


def _processors() -> Iterator[Finding]:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("this machine", Level.OK, f"{count} processor{'s' * (count > 1)}, Python {version}")


def _open_files() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,} a process"
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        can = f"ulimit -n {_FILES}" if hard == resource.RLIM_INFINITY or hard >= _FILES else "raise the hard limit too"
        yield Finding("open files", Level.WARNING, f"{text}: too few for a worker with many runs", can)
    else:
        yield Finding("open files", Level.OK, text)


def _disk(home: Path) -> Iterator[Finding]:
    place = home.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    answer = f"{byte_text(free)} free at {home}"
    if not os.access(place, os.W_OK | os.X_OK):
        yield Finding("disk", Level.WARNING, f"{place} is not writable", "give another place with --home")
    elif free < _DISK:
        yield Finding("disk", Level.WARNING, answer, "make room, or give another place with --home")
    else:
        yield Finding("disk", Level.OK, answer)
