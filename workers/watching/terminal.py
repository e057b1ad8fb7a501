"""A view in the words, marks and colours of a terminal: lines and rows of tables, for `top` to put in place.

What somebody else wrote becomes `Text`, in which brackets are brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from workers.explaining.reasons import why_hole, why_refused
from workers.watching.view import Brief, Share, View, clock, date, left, per_minute, seconds, sorted_counts

__all__ = [
    "AMBER",
    "GLYPHS",
    "RED",
    "Row",
    "about",
    "brief_row",
    "facts",
    "flow",
    "head",
    "headline",
    "hold_rows",
    "latest",
    "legend",
    "reasons",
    "refusal_rows",
    "verdict",
]

_GAP: Final = "   "
_BLUE, _TEAL, _GREEN, RED, AMBER = "#4a90c2", "#3fa0a8", "#2f9e6e", "#d9534f", "#b7791f"
"""Tones that can be read on a dark ground and on a light one."""
GLYPHS: Final = {
    "scored": ("█", _BLUE),
    "hole": ("▚", RED),
    "scoring": ("▓", _TEAL),
    "sealed": ("▒", _TEAL),
    "running": ("░", _GREEN),
    "queued": ("·", ""),
    "ahead": (" ", ""),
    "bin0": ("█", _GREEN),
    "bin1": ("▒", ""),
    "bin2": ("░", ""),
    "bin3": ("·", ""),
}
"""Each state has a mark of its own: colour says nothing alone."""
_STATES: Final = {
    "open": f"bold {_BLUE}", "closing": f"bold {_BLUE}", "closed": f"bold {_GREEN}", "inconclusive": f"bold {AMBER}",
}  # fmt: skip
_GATES: Final = {"passed": f"bold {_GREEN}", "failed": f"bold {RED}", "undecided": f"bold {AMBER}"}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table; `key` says which it is when others come and go."""

    key: str
    cells: tuple[Text, ...]


def head(plane: str, server: str) -> Text:
    """The line above every screen."""
    return Text.assemble(("evalbus top", "bold"), f"  {plane}  {server}")


def _number(count: int, style: str = "") -> Text:
    return Text(f"{count:,}", style=style if count else "dim", justify="right")


def brief_row(line: Brief) -> Row:
    """A batch in the list."""
    share = line.ended / line.intended if line.intended else 0
    full = min(10, int(10 * share))
    cells = (
        Text(line.batch, style="bold" if line.open else ""),
        Text(line.state, style=_STATES.get(line.state, "")),
        Text.assemble(("█" * full, _BLUE), ("░" * (10 - full), "dim")) if line.open else Text(line.told),
        Text(f"{line.ended:,}/{line.intended:,}", justify="right"),
        Text(left(line.seconds_left).removeprefix("about "), justify="right"),
        _number(line.running),
        _number(line.scoring),
        _number(line.holes, RED),
        _number(line.refused, AMBER),
        Text(per_minute(line.rate) if line.open else "", justify="right"),
        Text(date(line.began_ms) if line.began_ms else "", style="dim"),
    )
    return Row(line.batch, cells)


def about(view: View) -> Text:
    """Which batch, and where it stands."""
    text = Text.assemble((view.batch, "bold"), "  ", (view.state, _STATES.get(view.state, "")))
    text.append(f"  suite {view.spec.suite}", style="dim")
    for told in filter(None, (view.some_of, view.in_partitions)):
        text.append(f" · {told}", style="dim")
    if view.began_ms:
        text.append(f" · declared {date(view.began_ms)} UTC", style="dim")
    return text


def headline(view: View) -> Text:
    """Progress while it is open; its number when it has closed."""
    outcome = view.outcome
    if outcome is None:
        text = Text.assemble((f"{view.ended:,}", "bold"), f" of {view.counters.intended:,} runs have ended")
        if view.glance.seconds_left is not None and view.ended < view.counters.intended:
            text.append(f", {left(view.glance.seconds_left)} left")
        return text.append("   progress, not a pass rate", style="dim")
    if outcome.pass_rate is None:
        return Text.assemble(("No pass rate", "bold"), ": ", "; ".join(outcome.gate.why))
    passed = f"   {outcome.passed:,} of {outcome.accepted:,} scored runs passed"
    return Text.assemble(("pass rate ", ""), (f"{outcome.pass_rate:.4f}", "bold"), (passed, "dim"))


def flow(items: Sequence[Text], width: int) -> list[Text]:
    """Items as lines of at most `width` cells: a name does not lose its figure at a line's end."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + len(_GAP) + item.cell_len <= width:
            lines[-1].append(_GAP).append_text(item)
        else:
            lines.append(item.copy())
            lines[-1].truncate(width, overflow="ellipsis")
    return lines


def legend(shares: Sequence[Share]) -> list[Text]:
    """What the marks of the bar mean, with the counts."""
    items = []
    for share in shares:
        glyph, style = GLYPHS[share.kind]
        item = Text().append(glyph if glyph != " " else "□", style=style or "dim")
        item.append(f" {share.count:,} ", style="bold" if share.count else "dim")
        items.append(item.append(share.name, style="" if share.count else "dim"))
    return items


def facts(view: View) -> list[Text]:
    """Rates, room, tokens; of an ended batch what its number rests on."""
    counts, outcome = view.counters, view.outcome
    known: list[tuple[str, str]] = []
    if outcome is None:
        known += [
            ("runs/min", per_minute(view.rate)),
            ("in flight", f"{counts.in_flight:,} of {view.spec.bound:,}"),
            ("workers", str(view.workers)),
            ("scorers", str(view.scorers)),
            ("quorum", f"{counts.quorum:,}"),
        ]
    elif outcome.interval is not None and outcome.bounds is not None:
        known += [
            ("interval", f"{outcome.interval.low:.4f} to {outcome.interval.high:.4f}"),
            ("bounds", f"{outcome.bounds.low:.4f} to {outcome.bounds.high:.4f}"),
        ]
    if counts.spent or counts.reserved or view.budget is not None:
        of = "" if view.budget is None else f" of {view.budget:,}"
        known += [("tokens", f"{counts.spent:,}{of}"), ("durable", f"{counts.durable:,}")]
        known += [("reserved", f"{counts.reserved:,}")] if outcome is None else []
    return [Text.assemble((f"{name} ", "dim"), value) for name, value in known]


def verdict(view: View) -> Text:
    """Of an ended batch: the gate's word, what it asks and what was missed, and the snapshot. Else nothing."""
    text, outcome = Text(), view.outcome
    if outcome is None:
        return text
    word = outcome.gate.word.value
    text.append("gate ", style="dim").append(word, style=_GATES.get(word, ""))
    text.append(f" {outcome.gate.rule}" if outcome.gate.rule else "", style="dim")
    if outcome.pass_rate is not None:  # without one, the headline says why
        text.append("".join(f"\n  {why}" for why in outcome.gate.why))
    return text.append("\nsnapshot ", style="dim").append(outcome.snapshot_id or "none")


def hold_rows(view: View) -> list[Row]:
    """Who holds what. A row's key is its run."""
    rows = []
    for hold in view.holds:
        silent = hold.silent_ms or 0
        cells = (
            Text.assemble(("S " if hold.scoring else "W ", "dim"), hold.who),
            Text(hold.run),
            Text(str(hold.gen), justify="right"),
            Text(str(hold.delivery), style=AMBER if hold.delivery > 1 else "", justify="right"),
            Text(
                "-" if hold.silent_ms is None else seconds(silent),
                style=f"bold {RED}" if silent > view.spec.lease_ms else "",
                justify="right",
            ),
        )
        rows.append(Row(hold.run, cells))
    return rows


def reasons(view: View) -> Text:
    """Holes and refusals by reason, and the calls of tools that are not over."""
    counts, text = view.counters, Text()
    kinds: tuple[tuple[str, dict[str, int], str, Callable[[str], str]], ...] = (
        ("Holes", dict(counts.hole_reasons), RED, why_hole),
        ("Refused", dict(counts.refusals), AMBER, why_refused),
    )
    for title, reasons, style, words in kinds:
        text.append(title, style="bold").append(f" {sum(reasons.values()):,}\n", style="dim")
        for reason, count in sorted_counts(reasons):
            text.append(f"{count:>6,} ", style=style).append(reason).append(f"  {words(reason)}\n", style="dim")
        text.append("\n")
    if counts.effects_open or counts.stuck:
        text.append("Calls of tools", style="bold")
        text.append(f" {counts.effects_open:,} not ended, {counts.stuck:,} stuck\n", style="dim")
        for doubt in view.doubts:
            text.append(f"  {doubt.run}  {doubt.tool}: {doubt.says}\n")
    text.rstrip()
    return text


def latest(view: View) -> str:
    """The title of the latest refusals: since when none was left out, where that is not the batch's beginning."""
    since = f", of those since {clock(view.refusals_since_ms)}" if view.refusals_since_ms > view.began_ms else ""
    return f"Latest refusals{since}"


def refusal_rows(view: View) -> list[Row]:
    """The latest refusals. A row's key begins with its run, on a line of its own."""
    return [
        Row(
            f"{one.run}\n{one.partition} {one.entry}",
            (
                Text(clock(one.ms), style="dim"),
                Text(one.run),
                Text(one.who),
                Text(one.by, style="dim"),
                Text.assemble((one.reason, AMBER), (f"  {one.words}", "dim")),
            ),
        )
        for one in view.refusals
    ]
