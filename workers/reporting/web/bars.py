"""Bars that make up a whole: where the runs went, where the tokens went."""

from __future__ import annotations

from dataclasses import dataclass

from workers.explaining.reasons import why_hole
from workers.reporting.facts import Facts, Tokens
from workers.reporting.web.words import count

__all__ = ["Bar", "outcomes", "token_bars"]

_OTHERS = 5  # colours of bins that are not the one that passes; a sixth takes the first again


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart, and its row in the table that the chart is."""

    label: str
    note: str
    count: int
    whole: int
    look: str
    """The name of its colour and pattern."""
    start: float = 0.0
    """Where it begins when the bars stand in one row."""
    state: str = ""
    """What the table of runs is filtered by to see them."""

    @property
    def part(self) -> float:
        """Of the whole."""
        return self.count / self.whole if self.whole else 0.0

    @property
    def x(self) -> str:
        """Where it begins, as a length of SVG."""
        return f"{100 * self.start:.3f}%"

    @property
    def width(self) -> str:
        """Likewise."""
        return f"{100 * self.part:.3f}%"


def outcomes(facts: Facts) -> tuple[Bar, ...]:
    """Where each intended run went: its bin, a hole by its reason, or nowhere yet. The counts sum up to all of them.

    Of an open batch the bins are not told apart: who sees them quotes a share of what happened to be finished.
    """
    outcome = facts.outcome
    bars, at = [], 0
    if not outcome.status.ended:
        at = sum(outcome.bins.values())
        bars = [Bar("scored", "bins are counted when the batch has closed", at, outcome.intended, "other1", 0)]
    for number, (name, many) in enumerate(outcome.bins.items() if outcome.status.ended else ()):
        look = f"other{(number - 1) % _OTHERS}" if number else "pass"
        bars.append(Bar(name, "the bin that passes" if not number else "", many, outcome.intended, look, at, name))
        at += many
    for why, many in sorted(outcome.holes.items(), key=lambda pair: (-pair[1], pair[0])):
        bars.append(Bar(why, why_hole(why), many, outcome.intended, "hole", at, f"hole: {why}"))
        at += many
    if rest := outcome.intended - at:
        bars.append(Bar("not ended", "waiting, or under way", rest, outcome.intended, "rest", at))
    whole = outcome.intended or 1
    return tuple(Bar(bar.label, bar.note, bar.count, bar.whole, bar.look, bar.start / whole, bar.state) for bar in bars)


def token_bars(tokens: Tokens) -> tuple[Bar, ...]:
    """Where the tokens went, beside the budget where there is one; empty when nothing was spent or set."""
    used = tokens.spent + tokens.reserved
    whole = max(used, tokens.budget or 0)
    if not whole:
        return ()
    bars = [
        ("durable", "arrived and were recorded", tokens.durable, "pass"),
        ("orphan", "paid for, and part of no accepted result", tokens.orphan, "other0"),
    ]
    if tokens.reserved:
        bars.append(("reserved", "for requests that are open or not settled", tokens.reserved, "hole"))
    if tokens.budget is not None and tokens.budget > used:
        bars.append(("left", f"of a budget of {count(tokens.budget)}", tokens.budget - used, "rest"))
    at, found = 0, []
    for label, note, many, look in bars:
        found.append(Bar(label, note, many, whole, look, at / whole))
        at += many
    return tuple(found)
