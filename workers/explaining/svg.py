"""A story as one SVG file: nothing from elsewhere, readable in the dark, by a screen reader and without colour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from workers.explaining.story import Lane, Look, Step, Story

__all__ = ["CSS", "draw"]

_RIGHT, _TOP, _FOOT = 24, 84, 76  # px: beside the last lane, for the heads, for the heads again
_LANE, _ROW, _LETTER = 170, 34, 7.6  # px: between lifelines, between steps, of a letter in the widest of usual fonts
_LINE = 15  # px between the lines of a head
_MOST_HEAD = 20  # letters in one line of a head
_MOST_WORDS = 110  # letters of the words on an arrow; the whole stands in its title

CSS = """
.ev{--ink:#1b1f24;--paper:#ffffff;--faint:#6a737d;--rule:#c8ced6;--bad:#b3261e;--doubt:#7a5200;--taken:#6b2fa0;--again:#0b5f8a}
@media (prefers-color-scheme:dark){.ev{--ink:#e6e9ee;--paper:#15181c;--faint:#9aa4b0;--rule:#414a55;--bad:#ff8a80;\
--doubt:#f0b95a;--taken:#cfa2f5;--again:#7cc8f0}}
.ev-paper{fill:var(--paper)}
.ev-head,.ev-time,.ev-words{font-family:ui-sans-serif,system-ui,sans-serif;font-size:12px;fill:var(--ink)}
.ev .ev-head{font-weight:600;text-anchor:middle}
.ev .ev-time{fill:var(--faint);text-anchor:end;font-variant-numeric:tabular-nums}
.ev .ev-words{paint-order:stroke;stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.ev-life{stroke:var(--rule);stroke-width:1}
.ev-arrow{fill:none;stroke:var(--ink);stroke-width:1.5}
.ev-tip{fill:none;stroke:var(--ink);stroke-width:1.5}
.ev-refused .ev-arrow,.ev-refused .ev-tip,.ev-hole .ev-arrow,.ev-hole .ev-tip{stroke:var(--bad);stroke-width:2}
.ev-refused .ev-arrow{stroke-dasharray:6 4}
.ev-doubt .ev-arrow,.ev-doubt .ev-tip{stroke:var(--doubt)}
.ev-doubt .ev-arrow{stroke-dasharray:2 4}
.ev-repeated .ev-arrow,.ev-repeated .ev-tip{stroke:var(--faint)}
.ev-repeated .ev-arrow{stroke-dasharray:1 3}
.ev-taken .ev-arrow,.ev-taken .ev-tip{stroke:var(--taken)}
.ev-delivered .ev-arrow,.ev-delivered .ev-tip{stroke:var(--again)}
.ev-delivered .ev-arrow{stroke-dasharray:9 3}
.ev .ev-refused .ev-words,.ev .ev-hole .ev-words{fill:var(--bad);font-weight:600}
.ev .ev-doubt .ev-words{fill:var(--doubt)}
.ev .ev-taken .ev-words{fill:var(--taken)}
.ev .ev-delivered .ev-words{fill:var(--again)}
"""

_CLASSES = {
    Look.GRANTED: "granted",
    Look.REFUSED: "refused",
    Look.DOUBT: "doubt",
    Look.REPEATED: "repeated",
    Look.TAKEN: "taken",
    Look.DELIVERED: "delivered",
    Look.HOLE: "hole",
}


def draw(story: Story, *, styled: bool = True, name: str = "ev") -> str:
    """The `<svg>` element. `styled`: with its own style sheet, for a file; `name` makes its ids unique on a page."""
    left = int(28 + _LETTER * max((len(_time(step)) for step in story.steps), default=0))
    places = {lane: left + _LANE // 2 + _LANE * number for number, lane in enumerate(story.lanes)}
    height = _TOP + _ROW * len(story.steps) + _FOOT
    most = max((_left(step, places) + _LETTER * len(_words(step)) for step in story.steps), default=0)
    width = int(max(left + _LANE * len(places) + _RIGHT, most + _RIGHT))
    title = escape(f"Run {story.run} of batch {story.batch}")
    told = escape(_description(story))
    body = "\n".join([*_heads(story, places, height), *_steps(story, places, left)])
    style = f"<style>{CSS}</style>\n" if styled else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ev" role="graphics-document" '
        f'aria-labelledby="{name}-title {name}-desc" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">\n'
        f'<title id="{name}-title">{title}</title>\n<desc id="{name}-desc">{told}</desc>\n{style}'
        f'<rect class="ev-paper" width="{width}" height="{height}"/>\n{body}\n</svg>\n'
    )


def _description(story: Story) -> str:
    lanes = ", ".join(lane.title for lane in story.lanes)
    facts = story.facts
    end = f"scored {facts.score.bin}" if facts.score else f"a hole: {facts.hole.why}" if facts.hole else "not ended"
    return f"Sequence diagram. Lanes: {lanes}. {len(story.steps)} steps, {len(story.refusals)} refused. The run: {end}."


def _heads(story: Story, places: Mapping[Lane, int], height: int) -> Iterator[str]:
    """Lifelines with their names above and below."""
    for lane, x in places.items():
        yield f'<line class="ev-life" x1="{x}" y1="{_TOP - 24}" x2="{x}" y2="{height - _FOOT + 16}"/>'
        lines = _split(lane.title)
        for hidden, y in (("", _TOP - 34 - _LINE * (len(lines) - 1)), (' aria-hidden="true"', height - _FOOT + 34)):
            words = "".join(
                f'<tspan x="{x}" dy="{_LINE if number else 0}">{escape(line)}</tspan>'
                for number, line in enumerate(lines)
            )
            yield f'<text class="ev-head" y="{y}"{hidden}>{words}</text>'


def _steps(story: Story, places: Mapping[Lane, int], left: int) -> Iterator[str]:
    for number, step in enumerate(story.steps):
        y = _TOP + _ROW * number + 18
        start, end = places[step.source], places[step.target]
        whole = f"{_time(step)}, {step.source.title} to {step.target.title}: {step.label} (entry {step.entry})"
        yield (
            f'<g class="ev-{_CLASSES[step.look]}" role="graphics-symbol" aria-label="{escape(whole)}">'
            f"<title>{escape(whole)}</title>"
            f'<text class="ev-time" x="{left - 8}" y="{y + 4}">{_time(step)}</text>'
            f'<path class="ev-arrow" d="{_line(start, end, y)}"/><path class="ev-tip" d="{_tip(step, start, end, y)}"/>'
            f'<text class="ev-words" x="{_left(step, places)}" y="{y - 9}">{escape(_words(step))}</text></g>'
        )


def _time(step: Step) -> str:
    return f"+{step.ms / 1000:,.3f} s"


def _line(start: int, end: int, y: int) -> str:
    if start == end:
        return f"M{start} {y - 5}h24v10h-20"
    return f"M{start} {y}H{end}"


def _tip(step: Step, start: int, end: int, y: int) -> str:
    if start == end:
        return f"M{start + 10} {y}l-6 5l6 5"
    way = -1 if end > start else 1
    if step.look is Look.REFUSED:  # it stops before the lifeline, crossed out
        x = end + way * 14
        return f"M{x - 6} {y - 6}l12 12M{x + 6} {y - 6}l-12 12"
    if step.look is Look.HOLE:
        return f"M{end - 6} {y}a6 6 0 1 0 12 0a6 6 0 1 0 -12 0"
    return f"M{end + way * 8} {y - 5}L{end} {y}L{end + way * 8} {y + 5}"


def _left(step: Step, places: Mapping[Lane, int]) -> int:
    return int(min(places[step.source], places[step.target])) + 10


def _words(step: Step) -> str:
    return step.label if len(step.label) <= _MOST_WORDS else step.label[: _MOST_WORDS - 1] + "…"


def _split(title: str) -> list[str]:
    """A head in lines: a name, and which of its holds this was. What is too long for its lane is cut in its middle."""
    name, _, which = title.rpartition(", ") if ", " in title else (title, "", "")
    return [_cut(line) for line in (name, which) if line]


def _cut(line: str) -> str:
    half = (_MOST_HEAD - 1) // 2  # names that were made up differ at their ends
    return line if len(line) <= _MOST_HEAD else f"{line[:half]}…{line[-half:]}"
