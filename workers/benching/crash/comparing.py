"""Every misfortune for every queue: the table that says what each does.

The observations of one queue are made side by side, each on its own server: they consist of waiting. One queue follows
another, so that few cores suffice.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from bus.errors import InputError
from workers.benching.crash.observing import (
    Killed,
    NoServer,
    Stopped,
    Twice,
    killed,
    no_server,
    stopped,
    twice,
)
from workers.benching.crash.playing import Play, PlayError, playing

__all__ = ["MISFORTUNES", "QUEUES", "SHORT", "CrashTable", "Failed", "Observation", "Row", "run_crash"]

SHORT: Final = 5.0
"""Seconds: the redelivery time, where one can be set. The column "defaults" is without."""

QUEUES: Final[Mapping[str, tuple[str, ...]]] = {
    "evalbus": ("evalbus",),
    "evalbus_tool": ("evalbus",),
    "streaq": ("streaq",),
    "docket": ("pydocket",),
    "arq": ("arq",),
    "dramatiq": ("dramatiq",),
    "saq": ("saq",),
    "rq": ("rq",),
    "celery": ("celery",),
    "taskiq": ("taskiq", "taskiq-redis"),
}
"""Adapter → the packages that it needs."""

_TITLES: Final = {"evalbus_tool": "evalbus, by a tool", "celery": "celery, acks_late", "taskiq": "taskiq, streams"}
_HEAD: Final = (
    "queue",
    "kill -9: run again after, defaults",
    "the same, short setting",
    "a stopped worker wakes up after its job was run again",
    "same id twice: effects (both queued / while running / after)",
    "server killed and restarted",
)


@dataclass(frozen=True, slots=True)
class Failed:
    """An observation that could not be made."""

    error: str

    def __str__(self) -> str:
        """For a table."""
        return f"not observed: {self.error}"


Observation: TypeAlias = Killed | Stopped | Twice | NoServer | Failed


@dataclass(frozen=True, slots=True)
class Row:
    """One queue."""

    queue: str
    version: str
    found: Mapping[str, Observation]

    def as_json(self) -> dict[str, object]:
        """Each observation with its own fields."""
        return {"version": self.version, **{name: asdict(one) for name, one in self.found.items()}}

    def cells(self) -> list[str]:
        """For the table."""
        title = _TITLES.get(self.queue, self.queue)
        found = [str(self.found[name]).replace("|", "/") if name in self.found else "" for name in MISFORTUNES]
        return [f"{title} ({self.version})", *found]


@dataclass(frozen=True, slots=True)
class CrashTable:
    """Every queue that was looked at, on one machine, in one hour."""

    at: datetime
    rows: Sequence[Row] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """What a file of it holds."""
        return {
            "at": self.at.isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "short_setting_s": SHORT,
            "queues": {row.queue: row.as_json() for row in self.rows},
        }

    def markdown(self) -> str:
        """A table."""
        lines = [_HEAD, tuple("---" for _ in _HEAD), *(row.cells() for row in self.rows)]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


MISFORTUNES: Final[Mapping[str, tuple[Callable[[Play], Awaitable[Observation]], float | None]]] = {
    "killed_defaults": (killed, None),
    "killed_short": (killed, SHORT),
    "stopped": (stopped, SHORT),
    "twice": (twice, SHORT),
    "no_server": (no_server, SHORT),
}
"""Each with the redelivery time that is set for it."""


async def run_crash(
    queues: Sequence[str], tell: Callable[[str], None] = print, only: Sequence[str] = tuple(MISFORTUNES)
) -> CrashTable:
    """Look at each of the queues; one takes a minute or two. Raises InputError for a name that is none."""
    for unknown in [queue for queue in queues if queue not in QUEUES]:
        raise InputError(f"there is no adapter for {unknown!r}", remedy=f"any of {', '.join(QUEUES)}")
    for unknown in [name for name in only if name not in MISFORTUNES]:
        raise InputError(f"nothing is observed under {unknown!r}", remedy=f"any of {', '.join(MISFORTUNES)}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="evb-crash-", ignore_cleanup_errors=True) as directory:
        for queue in queues:
            rows.append(await _row(queue, Path(directory) / queue, only))
            tell(f"{queue}: " + "; ".join(f"{name} {found}" for name, found in rows[-1].found.items()))
    return CrashTable(datetime.now(UTC), rows)


async def _row(queue: str, directory: Path, only: Sequence[str]) -> Row:
    versions = [_version(package) for package in QUEUES[queue]]
    missing = [package for package, version in zip(QUEUES[queue], versions, strict=True) if version is None]
    if missing:
        error = Failed(f"{', '.join(missing)} is not installed (pip install --group bench)")
        return Row(queue, "not installed", dict.fromkeys(only, error))
    found = await asyncio.gather(*(_observed(queue, directory / name, *MISFORTUNES[name]) for name in only))
    return Row(queue, str(versions[0]), dict(zip(only, found, strict=True)))


async def _observed(
    queue: str, directory: Path, observe: Callable[[Play], Awaitable[Observation]], redelivery: float | None
) -> Observation:
    try:
        async with playing(queue, directory, redelivery) as play:
            return await observe(play)
    except PlayError as error:
        return Failed(str(error))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
