"""The shortest history that still shows a violation: what is read by whoever looks for its cause.

A batch has thousands of entries, and a violation needs a few of them. Two things are left out:

- what came behind it: it is cut to the shortest beginning that shows it;
- the runs that have nothing to do with it, all of each: their own entries, and their parts of entries about many.

What is about the batch itself stays, and so does every entry of a run that is needed: a history from which single
entries were cut would show what never happened. Nor is another violation taken for this one: a shorter history shows it
only if the same entry is the first that breaks the property, and with the same words, numbers apart. What is left is a
whole export, chained anew, in which every line says what it said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from bus.checker import Check, Checker
from bus.errors import InputError
from bus.replay.replayed import Replay
from bus.replay.telling import DiffersError
from workers.chaos.excerpts import Excerpts, line_of

__all__ = ["OF_ALL_RUNS", "OF_THE_WHOLE", "Shortest", "shortest"]

REPLAYED: Final = "chaos.P3"
"""The property that replay looks for, and not the checker."""

OF_THE_WHOLE: Final = frozenset(
    {
        "chaos.P1", "chaos.P2",  # how a batch ended, or that it did not
        "history.P1", "history.P2", "history.P3", "history.P6",  # the file as such: what is chained anew is another
        "close.P2", "snapshot.P1", "snapshot.P2", "snapshot.P3", "snapshot.P4",  # all runs that there are
        "effects.P4", "effects.P5", "effects.P6", "effects.P7", "tokens.P1",  # the endpoint's books of the whole
    }
)  # fmt: skip
"""Properties that no shorter history shows."""
OF_ALL_RUNS: Final = frozenset({REPLAYED, "histogram.P8", "histogram.P9", "histogram.P10", "join.P6"})
"""What they compare adds up over the runs: one that is left out would break them by itself."""

_DIGITS = re.compile(r"\d+")

Shows: TypeAlias = Callable[[Sequence[bytes]], bool]


@dataclass(frozen=True, slots=True)
class Shortest:
    """See the module's text."""

    lines: tuple[bytes, ...]
    """A whole export."""
    entries: int
    of: int
    """Entries that there were."""
    runs: tuple[str, ...]
    """Those whose entries are in it."""


def shortest(history: Sequence[bytes], check: Check, *, timed: bool = True) -> Shortest | None:
    """`history`: an export's lines; `check`: what was found broken in it; `timed`: see `Checker`.

    None: no shorter history shows it than the whole.
    """
    if check.id in OF_THE_WHOLE:
        return None
    whole = Excerpts.of(history)
    shows = _differs_as(check) if check.id == REPLAYED else _breaks_as(check, timed)
    runs = list(whole.runs)
    count = _beginning(whole, check, lambda count: shows(whole.export(count, runs)))
    if count is None:
        return None
    if check.id not in OF_ALL_RUNS:
        runs = _needed(runs, lambda some: shows(whole.export(count, some)))
    lines = tuple(whole.export(count, runs))
    entries = {line_of(raw).id.partition("/")[0] for raw in lines[1:-1]}
    return Shortest(lines, len(entries), len(whole.steps), tuple(runs))


def _beginning(whole: Excerpts, check: Check, shows: Callable[[int], bool]) -> int | None:
    """How many entries it takes; None: not even all of them show it.

    It is known at once where an entry is what breaks the property: there it ends. Otherwise it is looked for.
    """
    culprit = check.entries[0].partition("/")[0]
    count = next((count for count, step in enumerate(whole.steps, start=1) if step.id == culprit), 0)
    if count and shows(count):
        return count
    count = len(whole.steps)
    return _least(count, shows) if shows(count) else None


# --- what shows it ----------------------------------------------------------------------------------------


def _breaks_as(check: Check, timed: bool) -> Shows:
    """The checker names the same property, and the same case first."""

    def shows(lines: Sequence[bytes]) -> bool:
        checker = Checker("the shorter history", timed=timed)
        for line in lines:
            checker.feed(line)
        (found,) = [one for one in checker.finish().checks if one.property == check.property]
        return bool(found.violations) and _case(found) == _case(check)

    return shows


def _differs_as(check: Check) -> Shows:
    """Replay derives something else at the same place."""

    def shows(lines: Sequence[bytes]) -> bool:
        replay = Replay("the shorter history")
        try:
            for line in lines:
                replay.feed(line)
            replay.finish()
        except DiffersError as error:
            return error.problem == check.why
        except InputError:
            return False
        return False

    return shows


def _case(check: Check) -> tuple[str, ...]:
    """The first that broke it, and why. Parts of an entry are numbered anew, and sums are other ones."""
    return (*(name.partition("/")[0] for name in check.entries[:1]), _DIGITS.sub("#", check.why))


# --- what can be left out ---------------------------------------------------------------------------------


def _least(most: int, shows: Callable[[int], bool]) -> int:
    """A number that shows it, while one less does not; 0 may. `most` does."""
    without, with_ = -1, most
    while with_ - without > 1:
        middle = (without + with_) // 2
        if shows(middle):
            with_ = middle
        else:
            without = middle
    return with_


def _needed(runs: Sequence[str], shows: Callable[[Sequence[str]], bool]) -> list[str]:
    """Runs that show it together, and not without any one of them. All of them do.

    The shortest list of runs that shows it ends with one that is needed beside those that are known already.
    """
    needed: list[str] = []
    rest = list(runs)
    while count := _least(len(rest), lambda count: shows([*needed, *rest[:count]])):
        needed.append(rest[count - 1])
        del rest[count - 1 :]
    for run in tuple(needed):  # where one made another one needed that is not, now that a third is there
        others = [one for one in needed if one != run]
        if shows(others):
            needed = others
    return sorted(needed)
