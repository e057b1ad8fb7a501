"""Run-length encoding: "aaab" is three times "a", then once "b"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One character and how often it stands in a row."""

    character: str
    count: int


def encode(text: str) -> list[Run]:
    """Return the runs of `text`, in order; neighbouring runs have different characters."""
    runs: list[Run] = []
    current = ""
    count = 0
    for character in text:
        if character == current:
            count += 1
            continue
        if count > 0:
            runs.append(Run(current, count))
        current = character
        count = 1
    return runs


def decode(runs: list[Run]) -> str:
    """Return the text that `encode` turned into `runs`."""
    return "".join(run.character * run.count for run in runs)
