"""A story in a terminal: lifelines on the left, what was said beside them.

Words on the arrows would need a screen as wide as the longest of them; so the arrows are narrow and the words stand to
their right. Where even the lanes find no room, a line a step says from whom to whom. Nothing is told by colour alone.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from rich.console import Console
from rich.text import Text

from workers.explaining.story import Lane, Look, Step, Story

__all__ = ["show"]

_WIDEST, _NARROWEST = 9, 5  # columns of one lane
_LEAST_WORDS = 28  # columns: fewer, and a step would run over half the screen

_STYLES = {
    Look.GRANTED: "",
    Look.REFUSED: "bold red",
    Look.DOUBT: "yellow",
    Look.REPEATED: "dim",
    Look.TAKEN: "magenta",
    Look.DELIVERED: "cyan",
    Look.HOLE: "bold red",
}


@dataclass(frozen=True, slots=True)
class _Glyphs:
    lifeline: str
    line: str
    faint: str
    to_right: str
    to_left: str
    refused: str
    hole: str
    turned: str
    crossed: str
    """Where a whole line goes over a lifeline. A broken one leaves the lifeline to be seen."""


_DRAWN = _Glyphs("│", "─", "╌", "▶", "◀", "✗", "○", "↺", "┼")
_TYPED = _Glyphs("|", "-", ".", ">", "<", "x", "o", "@", "+")  # a terminal that knows only ASCII

_ASCII = str.maketrans({"✗": "x", "○": "o", "…": "..."})


def show(story: Story, console: Console) -> None:
    """Print it, as wide as the console is."""
    for line in draw(story, console.width, ascii_only=console.options.ascii_only):
        console.print(line, soft_wrap=True, markup=False)


def draw(story: Story, width: int, *, ascii_only: bool = False) -> Iterator[Text]:
    """The lines, none wider than `width` unless a single word is."""
    glyphs = _TYPED if ascii_only else _DRAWN
    lanes, keys = story.lanes, story.keys
    yield _text(f"run {story.run} of batch {story.batch}", "bold", ascii_only)
    for lane in lanes:
        yield from _wrapped(Text(f"  {keys[lane].ljust(4)} "), Text(lane.title), width, ascii_only)
    yield Text("")
    times = [_time(step.ms) for step in story.steps]
    time_width = max(map(len, times), default=0) + 2
    room = width - time_width - _LEAST_WORDS
    lane_width = min(_WIDEST, room // max(len(lanes), 1))
    if lane_width < _NARROWEST:
        for time, step in zip(times, story.steps, strict=True):
            arrow = f"{keys[step.source]} to {keys[step.target]}  "
            yield from _wrapped(Text(f"{time.rjust(time_width - 2)}  {arrow}"), _words(step), width, ascii_only)
        return
    head = " " * time_width + "".join(keys[lane].ljust(lane_width) for lane in lanes)
    yield Text(head.rstrip(), style="bold")
    idle = "".join(glyphs.lifeline.ljust(lane_width) for _ in lanes)
    for time, step in zip(times, story.steps, strict=True):
        art = Text(f"{time.rjust(time_width - 2)}  ", style="dim")
        art.append(_arrow(step, lanes, lane_width, glyphs), style=_STYLES[step.look] or "default")
        yield from _wrapped(art, _words(step), width, ascii_only, " " * time_width + idle)
    yield Text(head.rstrip(), style="bold")


def _arrow(step: Step, lanes: list[Lane], width: int, glyphs: _Glyphs) -> str:
    """The row of lifelines with one arrow across them."""
    cells = list("".join(glyphs.lifeline.ljust(width) for _ in lanes))
    start, end = lanes.index(step.source) * width, lanes.index(step.target) * width
    is_whole = step.look in (Look.GRANTED, Look.HOLE, Look.TAKEN)
    line, crossing = (glyphs.line, glyphs.crossed) if is_whole else (glyphs.faint, glyphs.lifeline)
    if start == end:
        cells[start] = glyphs.turned
        return "".join(cells)
    low, high = sorted((start, end))
    for at in range(low + 1, high):
        cells[at] = line if at % width else crossing
    head = glyphs.to_right if end > start else glyphs.to_left
    mark = {Look.REFUSED: glyphs.refused, Look.HOLE: glyphs.hole}.get(step.look, head)
    # The head stands before the lifeline that it points at, so that the line itself is seen.
    cells[end - 1 if end > start else end + 1] = mark
    return "".join(cells)


def _words(step: Step) -> Text:
    return Text(step.label, style=_STYLES[step.look])


def _wrapped(art: Text, words: Text, width: int, ascii_only: bool, below: str | None = None) -> Iterator[Text]:
    """The words beside the art; what does not fit goes on below, beside `below`."""
    if ascii_only:
        words = _text(words.plain, str(words.style), ascii_only)
    room = max(width - len(art), 1)
    rest = Text(below if below is not None else " " * len(art), style="dim")
    for number, line in enumerate(words.wrap(_measuring(), room, overflow="fold")):
        whole = (rest if number else art).copy()
        whole.append_text(line)
        whole.rstrip()
        yield whole


@cache
def _measuring() -> Console:
    """What wraps text; nothing is printed on it."""
    return Console(file=io.StringIO())


def _text(words: str, style: str, ascii_only: bool) -> Text:
    if ascii_only:
        words = words.translate(_ASCII).encode("ascii", "replace").decode()
    return Text(words, style=style)


def _time(ms: int) -> str:
    return f"+{ms / 1000:,.3f}s"
