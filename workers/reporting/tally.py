"""Refusals by what refused and why: all of them counted, the first of each kind kept as they were presented."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bus.export_format import Line
from workers.reporting.facts import MOST_SAMPLES, Refusal, RefusalGroup
from workers.reporting.texts import clipped

__all__ = ["Tally", "is_refusal"]


def is_refusal(line: Line) -> bool:
    """Whether this decision granted nothing, and was no repetition of one that did. "Not yet" is no refusal."""
    return line.verb in ("reject", "replay")


@dataclass(slots=True)
class _Group:
    count: int = 0
    samples: list[Refusal] = field(default_factory=list)


class Tally:
    """Memory grows with the kinds of refusals, not with the refusals: a sample's long texts are cut."""

    def __init__(self) -> None:
        """Nobody was refused yet."""
        self._groups: dict[tuple[str, str, str], _Group] = {}

    def add(self, line: Line, ms: int, run: str, who: str) -> None:
        """One refusal, `ms` after the beginning; `run` and `who` are empty where it does not say."""
        group = self._groups.setdefault((line.fence, line.op, line.reason or ""), _Group())
        group.count += 1
        if len(group.samples) < MOST_SAMPLES:
            group.samples.append(Refusal(line.id, ms, run, who, _clipped(line.envelope), _clipped(line.args)))

    def groups(self) -> tuple[RefusalGroup, ...]:
        """The most frequent first; of equally frequent ones by name."""
        ordered = sorted(self._groups.items(), key=lambda item: (-item[1].count, item[0]))
        return tuple(RefusalGroup(*name, group.count, tuple(group.samples)) for name, group in ordered)


def _clipped(values: Mapping[str, object]) -> dict[str, object]:
    return {clipped(name): _clipped_value(value) for name, value in values.items()}


def _clipped_value(value: object) -> object:
    if isinstance(value, str):
        return clipped(value)
    if isinstance(value, dict):
        return _clipped(value)
    if isinstance(value, list):
        return [_clipped_value(one) for one in value]
    return value
