"""What of a batch a fence's state is read from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bus.recorded import Recorded
from bus.types import Plane, RunId

__all__ = ["Fields", "Read", "family"]

Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Read:
    """All of a batch that a fence's state is made of. `runs` holds the rows that exist, by run."""

    batch: Fields
    desk: Fields
    runs: Mapping[RunId, Fields]
    payloads: Mapping[RunId, Sequence[str]]
    dead: Sequence[Fields]
    planes: Fields
    slots: Fields
    undos: Mapping[Plane, Sequence[Fields]]
    """The inverses that wait on each plane."""
    history: Sequence[Recorded]


def family(row: Fields, prefix: str) -> dict[str, str]:
    """The fields of a row that begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}
