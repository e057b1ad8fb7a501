"""That nobody is there at an endpoint, told by `evalbus run` as soon as one of its processes has noted it.

A call that finds nobody is made again, eight times over half a minute: a server may be starting. Until then there is no
hole that could say why, and who looks on sees runs that do not end. The processes note it in their logs at the first
failure, each of them once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from bus.port import Counters
from workers.brief import brief

__all__ = ["EndpointNews"]

_NOTE: Final = b'"endpoint.unusable"'
_AT_ONCE: Final = 1 << 20  # bytes of a log in one look: what a solver prints stands there, too
_SHOWN: Final = 300  # characters


class EndpointNews:
    """The ends of the logs in a directory, from now on: what an earlier command left there is no news."""

    every = 1.0

    def __init__(self, logs: Path) -> None:
        """`logs` may not be there yet."""
        self._logs = logs
        self._read = {file: _size(file) for file in logs.glob("*.log")}
        self._told: set[str] = set()

    async def news(self, _: Counters, /) -> list[str]:
        """A line for each trouble that is new. Never raises: logs may be gone, or for people."""
        found: list[str] = []
        for file in sorted(self._logs.glob("*.log")):
            for why in self._new(file):
                if why not in self._told:
                    self._told.add(why)
                    found.append(f"no answer so far: {brief(why, _SHOWN)}; it is asked again")
        return found

    def _new(self, file: Path) -> list[str]:
        at = self._read.get(file, 0)
        if _size(file) < at:  # it was begun anew
            at = 0
        try:
            with file.open("rb") as log:
                log.seek(at)
                piece = log.read(_AT_ONCE)
        except OSError:
            return []
        # A line that is still being written is read again; one that is longer than a look is no note of ours.
        whole = piece.rfind(b"\n") + 1 or (len(piece) if len(piece) == _AT_ONCE else 0)
        self._read[file] = at + whole
        found = []
        for line in piece[:whole].splitlines():
            if _NOTE in line:
                try:
                    note = json.loads(line)
                except ValueError:
                    continue
                # Where it is not asked again, the first hole is there at once and says the same.
                if isinstance(note, dict) and note.get("event") == "endpoint.unusable" and note.get("again"):
                    found.append(str(note.get("why")))
        return found


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
