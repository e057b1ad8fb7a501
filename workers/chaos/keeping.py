"""What is left of a chaos that found something: its histories, the shortest that show it, and the logs."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bus.checker import Check
from workers.chaos.examining import Examined
from workers.chaos.shortening import shortest
from workers.chaos.telling import told
from workers.files import writing_whole

__all__ = ["Shown", "Violation", "keep", "shown"]

_ENTRIES = 5
_READABLE = 40  # entries that are told on the screen


@dataclass(frozen=True, slots=True)
class Shown:
    """The shortest history that shows a violation."""

    file: Path
    entries: int
    of: int
    """Entries of the whole."""
    runs: tuple[str, ...]
    words: tuple[str, ...]
    """Each entry in a line; none where there are many."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A property that does not hold in a batch, and where that can be seen."""

    check: Check
    history: Path
    shown: Shown | None
    """None: no shorter history shows it than the whole."""

    def told(self, seed: int) -> Iterator[str]:
        """Lines for standard error; the first one says it."""
        check = self.check
        yield f"seed {seed}: {check.property}: {check.says} [{', '.join(check.entries[:_ENTRIES])}] in {self.history}"
        if self.shown is None:
            yield "  no shorter history shows it than the whole"
            return
        one = self.shown
        runs = f"{len(one.runs)} runs" if len(one.runs) > _ENTRIES else ", ".join(one.runs) or "no run"
        yield f"  the shortest history that shows it has {one.entries} of {one.of} entries, {runs}: {one.file}"
        yield from (f"  {line}" for line in one.words)


def keep(examined: Iterable[Examined], root: Path, kept: Path) -> list[Violation]:
    """Put what can be looked at from `root` to where it stays, `kept`; what was there is removed."""
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    for logs in root.glob("*/logs"):
        shutil.copytree(logs, kept / "logs", dirs_exist_ok=True)
    for history in root.glob("*/*.jsonl"):  # the undisturbed one too
        shutil.copy2(history, kept / history.name)
    violations = []
    for one in examined:
        history = kept / one.history.name
        violations += [Violation(check, history, shown(history, check, timed=one.timed)) for check in one.broken]
    return violations


def shown(history: Path, check: Check, *, timed: bool = True) -> Shown | None:
    """Write the shortest history that shows it beside the whole one. None: there is none."""
    with history.open("rb") as lines:
        found = shortest(list(lines), check, timed=timed)
    if found is None:
        return None
    file = history.with_name(f"{history.stem}.{check.id}.shortest.jsonl")
    with writing_whole(file) as out:
        out.writelines(found.lines)
    words = tuple(told(found.lines)) if found.entries <= _READABLE else ()
    return Shown(file, found.entries, found.of, found.runs, words)
