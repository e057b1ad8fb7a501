"""Where in a history the lines of each run stand, so that a run can be told without reading all the others again.

Eight bytes a line are kept. The lines about the batch as a whole belong to each run's story and are kept apart.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from typing import BinaryIO

from bus.export_format import Line
from workers.histories.history_files import LONGEST_LINE
from workers.reporting.owners import is_of_batch

__all__ = ["Index", "line_of"]


def line_of(raw: bytes) -> Line:
    """One line of an export, already found true, without its chain."""
    said = json.loads(raw)
    del said["chain"]
    return Line(**said)


class Index:
    """Filled while a history is read the first time."""

    def __init__(self) -> None:
        """Of nothing."""
        self._places: dict[str, array[int]] = {}
        self._batch = array("Q")

    def add(self, line: Line, owner: str | None, place: int) -> None:
        """`place`: of the line's first byte in the file. `owner`: the run that it is about, if it is about one."""
        if owner is not None:
            self._places.setdefault(owner, array("Q")).append(place)
        elif is_of_batch(line) and line.verb != "in_doubt":
            # A batch that cannot be closed yet is asked again and again, and that tells nobody anything.
            self._batch.append(place)

    def lines(self, file: BinaryIO, run: str) -> Iterator[Line]:
        """The run's lines and those of the whole batch, in the order of the history."""
        for place in sorted([*self._places.get(run, ()), *self._batch]):
            file.seek(place)
            yield line_of(file.readline(LONGEST_LINE))
