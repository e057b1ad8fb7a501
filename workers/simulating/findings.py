"""What is asked of each schedule when it is over.

The checker reads the history, and the simulated endpoint's own books. Beside its properties stand five that a history
alone does not show: that the batch ended, that no role broke, that the runs which were scored were scored as in an
undisturbed run, that none was given up that a machine could do, and that replay derives every decision again.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bus.checker import Check, Checked, Checker
from bus.errors import EvalbusError
from bus.replay.replayed import Replay
from workers.simulating.faults import Listed
from workers.simulating.play import Played, play
from workers.simulating.setting import Setting

__all__ = ["Finding", "Violation", "find", "undisturbed"]

_SOURCE: Final = "the simulated history"

_ENDED: Final = "end.P1: once nothing goes wrong any more the batch ends, within its patience"
_BROKE: Final = "roles.P1: no role ends, or drops a message, by an exception that nobody foresaw"
_ALIKE: Final = "outcome.P1: a run that is scored is scored as in an undisturbed batch; else it is a hole that says why"
_FITTING: Final = "machines.P1: no run ends for what machines could not do while there is one that could"
_REPLAYED: Final = "replay.P1: the reference models derive each decision again"

_HONEST: Final = frozenset(
    {
        "poison", "judge_failed", "stuck", "endpoint_error", "retries_exhausted", "over_budget", "solver_timeout",
        "window_exhausted", "judge_mismatch", "judge_error", "judge_unparsed", "unreviewed", "machine_error",
    }
)  # fmt: skip
"""Holes in which a run may end because of what went wrong around it."""
_OF_CODE: Final = frozenset({"solver_error", "scorer_error"})
"""Likewise, where no machine could do what its code, or its scorer's, wanted to do."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A property that was broken."""

    property: str
    """As in `bus.checker`: `transcript.P2: …`."""
    says: str
    entries: tuple[str, ...] = ()

    @builtins.property  # the field above has taken the name
    def id(self) -> str:
        """`transcript.P2`."""
        return self.property.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a schedule came to."""

    checked: Checked
    checks: tuple[Check, ...]
    """The checker's, and those of this module."""
    violations: tuple[Violation, ...]
    lost: int
    """Runs that would have been scored in an undisturbed batch, and are holes."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the runs of a batch ended."""

    scored: Mapping[str, str]
    """Run → bin."""
    holes: frozenset[str]
    """Why others are holes."""


def find(setting: Setting, played: Played, *, replayed: bool = True) -> Finding:
    """Ask. `replayed`: the history is replayed, too."""
    checker = Checker(_SOURCE, timed=played.timed)
    for line in played.lines:
        checker.feed(line)
    checked = checker.finish(played.books)
    violations = [Violation(check.property, check.says, check.entries) for check in checked.broken]
    checks = list(checked.checks)

    def see(property_: str, examined: int, wrong: list[str]) -> None:
        says = f"{len(wrong)} broken by {len(wrong)} of {examined}"
        checks.append(Check(property_, examined, len(wrong), tuple(wrong), says))
        if wrong:
            violations.append(Violation(property_, "; ".join(wrong)))

    see(_ENDED, 1, [] if played.ended else ["it is open still"])
    see(_BROKE, 1, list(played.broken))
    expected = undisturbed(setting)
    wrong = [
        f"{run} is {bin_}, and {expected.scored.get(run, 'a hole')} when nothing goes wrong"
        for run, bin_ in checked.scored.items()
        if expected.scored.get(run) != bin_
    ]
    honest = _HONEST | expected.holes | (_OF_CODE if played.given_up else set())
    wrong += [f"{why}, which nothing explains" for why in checked.holes if why not in honest]
    see(_ALIKE, setting.suite.intended, wrong)
    see(_FITTING, len(played.given_up), list(played.wrongly))
    if replayed:
        # The models are told the time by the entries' ids, which do not go back when the server's clock does.
        see(_REPLAYED, *((len(played.lines), _differences(played)) if played.timed else (0, [])))
    return Finding(checked, tuple(checks), tuple(violations), len(expected.scored.keys() - checked.scored.keys()))


def _differences(played: Played) -> list[str]:
    replay = Replay(_SOURCE)
    try:
        for line in played.lines:
            replay.feed(line)
        replay.finish()
    except EvalbusError as error:
        return [str(error)]
    return []


_undisturbed: dict[tuple[str, str], Outcome] = {}


def undisturbed(setting: Setting) -> Outcome:
    """How the batch ends when nothing goes wrong. Played once in a process."""
    key = (setting.name, setting.suite.digest)
    if key not in _undisturbed:
        played = play(setting, "undisturbed", Listed(()))
        checker = Checker(_SOURCE)
        for line in played.lines:
            checker.feed(line)
        checked = checker.finish(played.books)
        assert played.ended, "a batch in which nothing goes wrong ends"
        _undisturbed[key] = Outcome(checked.scored, frozenset(checked.holes))
    return _undisturbed[key]
