"""A value of a configuration with the place where it is written: what is wrong with it is told with file and line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bus.errors import InputError
from workers.formats.yaml_file import Place

__all__ = ["Rows", "Source", "Written"]


class Source(Protocol):
    """A file that knows where its values stand."""

    @property
    def path(self) -> Path:
        """Itself."""

    def wrong(self, place: Place, problem: str, remedy: str | None = None) -> InputError:
        """The error for a value of it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A file of rows: the first part of a place is the row's line."""

    path: Path

    def wrong(self, place: Place, problem: str, remedy: str | None = None) -> InputError:
        """See `Source`."""
        line = place[0] if place and isinstance(place[0], int) else None
        told = "".join(f"{part}: " for part in place[1:2])
        return InputError(f"{told}{problem}", file=self.path, line=line, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Written:
    """A value as it is written, not checked yet; None where nothing is."""

    source: Source
    place: Place
    value: object

    def wrong(self, problem: str, remedy: str | None = None) -> InputError:
        """The error for it."""
        return self.source.wrong(self.place, problem, remedy)

    def below(self, part: str | int, value: object) -> Written:
        """A value that stands in it."""
        return Written(self.source, (*self.place, part), value)

    def file(self, name: str) -> Path:
        """A file that it names, relative to its own."""
        return self.source.path.parent / name
