"""An export taken apart, and put together again from some of its entries: chained anew, with the end that fits.

Of each line is known whose it is. A step of one run says so in its envelope; of a step of many runs, or of a sweep,
each part names its own; and what names none is about the batch.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from bus.export_format import Line, chained, spelt
from workers.explaining.entries import given, run_of_step

__all__ = ["Excerpts", "line_of"]

_EMPTY_CHAIN = "0" * 64
_NAMES = ("run", "step", "workspace", "case", "intent_id")


@dataclass(frozen=True, slots=True)
class _Step:
    """One entry: its lines, and whose each is; None: the batch's."""

    id: str
    lines: Sequence[Line]
    owners: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Excerpts:
    """See the module's text."""

    header: bytes
    steps: Sequence[_Step]
    snapshot: Mapping[str, Any] | None

    @classmethod
    def of(cls, history: Sequence[bytes]) -> Excerpts:
        """Of an export's lines."""
        header, *middle, footer = history
        lines = [line_of(raw) for raw in middle]
        owners = _Owners(lines)
        steps = []
        for name, group in groupby(lines, key=lambda line: line.id.partition("/")[0]):
            mine = list(group)
            steps.append(_Step(name, mine, [owners.of(line) for line in mine]))
        return cls(header, steps, json.loads(footer)["snapshot"])

    @property
    def runs(self) -> Mapping[str, None]:
        """In the order in which they come up."""
        return {owner: None for step in self.steps for owner in step.owners if owner is not None}

    def export(self, count: int, runs: Collection[str]) -> list[bytes]:
        """The first so many entries, and of them what is about these runs or the batch; with the end that fits."""
        made, head, ended = [self.header], _EMPTY_CHAIN, False
        for line in self._left(count, frozenset(runs)):
            text, head = chained(head, line)
            made.append(f'{text[:-1]},"chain":"{head}"}}\n'.encode())
            ended = ended or line.ends_batch
        last = {"entries": len(made) - 1, "head": head, "snapshot": self.snapshot if ended else None}
        return [*made, f"{spelt(last)}\n".encode()]

    def _left(self, count: int, runs: frozenset[str]) -> Iterator[Line]:
        for step in self.steps[:count]:
            left = [line for line, owner in zip(step.lines, step.owners, strict=True) if owner is None or owner in runs]
            for number, line in enumerate(left, start=1):
                yield replace(line, id=f"{step.id}/{number}") if "/" in line.id else line


def line_of(raw: bytes) -> Line:
    """A line of an export that is neither the first nor the last."""
    said = json.loads(raw)
    said.pop("chain")
    return Line(**said)


class _Owners:
    """Whose a line is: see the module's text."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._places: dict[str, str] = {}  # a sweep names the place, and not whose it was
        named = [line.envelope.get("run") for line in lines]
        named += [line.args.get("run") for line in lines if (line.fence, line.op) == ("judge", "mint")]
        self._known = {run for run in named if isinstance(run, str)}

    def of(self, line: Line) -> str | None:
        """The run; None for what is about the batch. Lines must come in order."""
        named = line.envelope.get("run")
        run = named if isinstance(named, str) else self._of_part(line)
        lease = given(line, "lease")
        if run is not None and line.op == "acquire" and isinstance(lease, str):
            self._places[lease] = run
        return run

    def _of_part(self, line: Line) -> str | None:
        args = {name: value for name, value in line.args.items() if isinstance(value, str)}
        if args.get("lease") in self._places:
            return self._places[args["lease"]]
        key = args.get("key", "").partition(":")[2].rpartition(":")[0]
        values = [value for name in _NAMES if (value := args.get(name))]
        return next(
            (run for value in [*values, key] for run in (value, run_of_step(value)) if run in self._known), None
        )
