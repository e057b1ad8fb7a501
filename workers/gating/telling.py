"""The figures that were asked for as lines of a screen, below what `workers.results.outcome` shows of any batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from workers.gating.figures import Change, Comparison, Figures, Group
from workers.gating.visible import visible
from workers.results.columns import columns
from workers.results.numbers import Interval

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["group_rows", "lines_of", "share", "show"]

_LABEL = 11  # as in `workers.results.outcome`
_SIGNS = 4
_CERTAIN = 0.0001
_CHANGED = 12  # cases named one by one, for better and for worse each; --figures has them all


def show(figures: Figures, console: Console) -> None:
    """Print them."""
    for line in lines_of(figures):
        console.print(line, soft_wrap=True, markup=False)


def lines_of(figures: Figures, *, everything: bool = False) -> list[str]:
    """Likewise, as text. `everything`: also what every screen of the batch shows."""
    lines = []
    error = figures.error
    several = everything and figures.trials > 1
    if figures.cluster is not None or several:
        what = f"{error.clusters} clusters by {visible(figures.cluster or 'case')}"
        interval = error.interval()
        within = "" if interval is None else f"   {_span(interval)}, 95%"
        lines.append(
            f"{'std error':<{_LABEL}}{share(error.error)}{within}   {what}, {share(figures.plain_error)} without"
        )
    for name, found in (("pass@", figures.pass_any), ("pass^", figures.pass_all)):
        if (figures.asked or several) and found:
            shown = " · ".join(f"{name}{one.k} {one.value:.4f}" for one in found)
            few = min(one.cases for one in found)
            aside = "" if few == figures.cases else f"   over {few} of {figures.cases} cases: the others have holes"
            lines.append(f"{name + 'k':<{_LABEL}}{shown}{aside}")
    if figures.comparison is not None:
        lines += _compared(figures.comparison, figures.trials)
    for field, groups in figures.groups.items():
        rows = group_rows(groups)
        lines += [f"by {visible(field)}", *(f"  {line}" for line in columns(rows, range(1, len(rows[0]))))]
    return lines


def group_rows(groups: Sequence[Group]) -> list[list[str]]:
    """A table, titles first; the first column is text, and somebody else's."""
    rows = [["", "cases", "passed", "scored", "rate", "Wilson, 95%", "std error", "holes", "bounds"]]
    for one in groups:
        rate, within = share(one.rate), _span(one.interval) if one.scored else "none"
        counts = [str(one.cases), str(one.passed), str(one.scored)]
        rows.append([visible(one.name), *counts, rate, within, share(one.error), str(one.holes), _span(one.bounds)])
    return rows


def _compared(one: Comparison, trials: int) -> list[str]:
    if one.difference is None:
        return [f"{'baseline':<{_LABEL}}{visible(one.baseline)}   no case is scored in both"]
    within = "" if one.interval is None else f"   {_signed_span(one.interval)}, bootstrap, 95%"
    if not one.better + one.worse and one.interval is not None and one.interval.low == one.interval.high:
        within = "   no case changed: how far chance could move it is not known"  # no width is no certainty
    test = "McNemar" if trials == 1 else "sign test over cases"
    odd = f"p {one.p_value:.4f}" if one.p_value >= _CERTAIN else f"p {one.p_value:.1e}"
    lines = [
        f"{'baseline':<{_LABEL}}{visible(one.baseline)}   {one.cases} cases in both",
        f"{'difference':<{_LABEL}}{one.difference:+.{_SIGNS}f}{within}",
        f"{'changed':<{_LABEL}}{one.better} better · {one.worse} worse   {test}, exact: {odd}",
    ]
    lines += _named(one.changed)
    if one.detectable is not None:
        lines.append(f"{'detectable':<{_LABEL}}{one.detectable:.4f}   the smallest difference that would be found")
    if one.bounds.low != one.bounds.high and (one.unscored or one.bounds.high - one.bounds.low > _CERTAIN):
        lines.append(f"{'':<{_LABEL}}{_signed_span(one.bounds)} had the holes of both failed and passed")
    asides = {"without a score in one of them": one.unscored, "only here": one.only_here, "only there": one.only_there}
    if told := [f"{count} {what}" for what, count in asides.items() if count]:
        lines.append(f"{'':<{_LABEL}}not compared: {' · '.join(told)}")
    return lines


def _named(changed: Sequence[Change]) -> Iterator[str]:
    """Which cases these are: whoever decides about a release looks at them next."""
    listed: list[tuple[str, str, str]] = []
    for word, cases in (
        ("worse", [one for one in changed if one.now < one.before]),
        ("better", [one for one in changed if one.now > one.before]),
    ):
        shown = cases[:_CHANGED]
        listed += [(word, visible(one.case), f"{share(one.before)} there, {share(one.now)} here") for one in shown]
        if len(cases) > len(shown):
            listed.append((word, f"and {len(cases) - len(shown)} more", "all of them: --figures FILE"))
    for line in columns(listed):
        yield f"{'':<{_LABEL}}  {line}"


def share(value: float | None) -> str:
    """Four digits, or `none`."""
    return "none" if value is None else f"{value:.4f}"


def _span(interval: Interval) -> str:
    return f"{interval.low:.4f} to {interval.high:.4f}"


def _signed_span(interval: Interval) -> str:
    return f"{interval.low:+.4f} to {interval.high:+.4f}"
