"""What a batch is doing, while it does it.

On a terminal two live lines at its foot; without one (a CI log, a file) a plain line every few seconds and at
each change of phase, so that a log of an hour is readable and a hang is visible. Both go to standard error:
standard output belongs to the result.

Bins are not shown. A share of what happens to be finished is not a pass rate, and whoever watches it climb
will quote it.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TextIO

from bus.port import BatchStatus, Counters
from workers.terminals import can_redraw, console_on

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

__all__ = ["NOT_YET", "Glance", "Pace", "Progress", "refused_of", "state_of"]

_QUIET_SECONDS: Final = 5.0
"""A plain line at most so often: an hour's log is 720 lines."""
_FRAME_SECONDS: Final = 0.1
"""A live frame at most so often: faster is not seen, and costs the workers their processor."""
_PACE_SECONDS: Final = 30.0
"""The rate is that of the last half minute …"""
_PACE_RUNS: Final = 10
"""… or of the last ten runs, where runs take minutes."""


NOT_YET: Final = ("backpressure", "bound_full", "capacity")
"""Reasons of refusals that only say "not yet": who asks for room is told so again and again. Nothing is amiss."""


def refused_of(counters: Counters) -> int:
    """How many refusals there were, without those for want of room."""
    return sum(count for why, count in counters.refusals.items() if why not in NOT_YET)


def state_of(counters: Counters) -> str:
    """`open`, then `closing` when all runs have ended, then the end: `closed` or `inconclusive`.

    `open` also when all have been admitted, which a small batch's are at once: `drained` would sound like its end.
    """
    is_closing = not counters.status.ended and counters.scored + counters.holes == counters.intended
    return "closing" if is_closing else counters.status.shown


class Pace:
    """A moving rate, from which the time left is estimated.

    Taken over a window and not since the start: a batch that is resumed starts with runs that are done, and a
    fleet grows and shrinks while it runs.
    """

    def __init__(self) -> None:
        """No samples yet."""
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, done: int) -> None:
        """`done` runs had ended at `now`, in seconds on any clock that does not go back."""
        self._samples.append((now, done))
        while len(self._samples) > 1:  # the oldest may go if the next still spans enough time and enough runs
            then, before = self._samples[1]
            if now - then < _PACE_SECONDS or done - before < _PACE_RUNS:
                break
            self._samples.popleft()

    def seconds_left(self, remaining: int) -> float | None:
        """Estimated seconds until `remaining` more runs have ended; None while nothing can be said."""
        if remaining == 0:
            return 0.0
        (first, before), (last, done) = self._samples[0], self._samples[-1]
        if done <= before or last <= first:
            return None
        return remaining * (last - first) / (done - before)


@dataclass(frozen=True, slots=True)
class Glance:
    """The batch at one moment, as it is shown."""

    status: BatchStatus
    phase: str
    """As `state_of`."""
    intended: int
    done: int
    running: int
    scoring: int
    """Sealed runs, those that wait for a scorer and those that have one."""
    holes: int
    refused: int
    """Without those that only had to wait for room."""
    tokens: int
    workers: int | None
    """This command's own that are alive; None where it was told to have none: then others work, and are not counted."""
    scorers: int | None
    seconds_left: float | None

    @classmethod
    def of(cls, counters: Counters, workers: int | None, scorers: int | None, seconds_left: float | None) -> Glance:
        """Sum up what the batch's hash says."""
        return cls(
            status=counters.status,
            phase=state_of(counters),
            intended=counters.intended,
            done=counters.scored + counters.holes,
            running=counters.running,
            scoring=counters.sealed + counters.scoring,
            holes=counters.holes,
            refused=refused_of(counters),
            tokens=counters.spent,
            workers=workers,
            scorers=scorers,
            seconds_left=seconds_left,
        )

    @property
    def left(self) -> str:
        """`1:05 left`, `2:03:09 left`, or nothing where nothing can be said."""
        if self.seconds_left is None or self.done == self.intended:
            return ""
        minutes, seconds = divmod(round(self.seconds_left), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left"

    @property
    def words(self) -> list[str]:
        """All but the bar, in the order in which they are shown."""
        crew = ((self.workers, "worker"), (self.scorers, "scorer"))
        return [
            f"{self.running} running",
            f"{self.scoring} being scored",
            _many(self.holes, "hole"),
            f"{self.refused} refused",
            _many(self.tokens, "token"),
            *(_many(count, noun) for count, noun in crew if count is not None),
        ]

    def __str__(self) -> str:
        """One plain line: phase, done, the rest, time left."""
        words = [f"{self.phase} {self.done}/{self.intended} done", *self.words]
        return " · ".join(words + ([self.left] if self.left else []))


class _Display(Protocol):
    def show(self, glance: Glance, now: float) -> None:
        """Show it, now or at the next occasion."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def stop(self) -> None:
        """Leave the terminal as it was found, with the last state on it."""


class Progress:
    """Shows a batch until it is stopped: a context manager, so that an interrupt leaves a clean terminal."""

    def __init__(self, title: str, stream: TextIO | None = None) -> None:
        """`title` names the batch; `stream` is standard error unless told otherwise."""
        out = sys.stderr if stream is None else stream
        self._pace = Pace()
        self._display: _Display = _LiveLines(title, out) if can_redraw(out) else _PlainLines(title, out)

    def update(self, counters: Counters, workers: int | None, scorers: int | None, now: float) -> None:
        """Tell what the batch's hash says at `now` (seconds, monotonic), as often as you like.

        `workers`, `scorers`: how many of this command's own are alive; None where it has none.
        """
        done = counters.scored + counters.holes
        self._pace.add(now, done)
        left = self._pace.seconds_left(counters.intended - done)
        self._display.show(Glance.of(counters, workers, scorers, left), now)

    def note(self, text: str) -> None:
        """Say something that stays: a worker died, the server came back."""
        self._display.note(text)

    def stop(self) -> None:
        """End the display; the last state stays. May be called twice."""
        self._display.stop()

    def __enter__(self) -> Self:
        """Start."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, whatever happened."""
        self.stop()


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class _PlainLines:
    """A line now and then. Without rich: it must cost nothing, and a log wants neither colour nor width."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title, self._stream = title, stream
        self._phase = ""
        self._next = float("-inf")
        self._pending: Glance | None = None

    def show(self, glance: Glance, now: float) -> None:
        self._pending = glance
        if glance.phase != self._phase or now >= self._next:
            self._phase, self._next = glance.phase, now + _QUIET_SECONDS
            self._flush()

    def note(self, text: str) -> None:
        # Whoever reads the log may have gone (`… 2>&1 | head`). That is no reason to stop an evaluation.
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(f"{self._title}: {text}\n")
            self._stream.flush()

    def stop(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._pending is not None:
            self.note(str(self._pending))
            self._pending = None


class _LiveLines:
    """Two lines at the foot of the terminal, redrawn by the caller's own calls: no thread, no timer."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = title
        self._console = console_on(stream)
        self._live: Live | None = None
        self._next = float("-inf")
        self._phase = ""
        self._last: Glance | None = None

    def show(self, glance: Glance, now: float) -> None:
        self._last = glance
        if glance.phase == self._phase and now < self._next:
            return
        self._phase, self._next = glance.phase, now + _FRAME_SECONDS
        if self._live is None:
            from rich.live import Live  # noqa: PLC0415 - only a terminal needs it

            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
        self._live.update(self._frame(glance), refresh=True)

    def note(self, text: str) -> None:
        self._console.print(f"{self._title}: {text}", markup=False, soft_wrap=True)

    def stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            if self._last is not None:
                live.update(self._frame(self._last))
            live.stop()

    def _frame(self, glance: Glance) -> Group:
        from rich.console import Group  # noqa: PLC0415 - only a terminal needs it
        from rich.progress_bar import ProgressBar  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        bar = Table.grid(padding=(0, 1), expand=True)
        bar.add_column(overflow="ellipsis", no_wrap=True, max_width=24)
        bar.add_column(ratio=1)
        bar.add_column(justify="right", no_wrap=True)
        bar.add_row(
            Text(self._title, style="bold"),
            ProgressBar(
                total=max(1, glance.intended),
                completed=glance.done,
                complete_style="cyan",  # rich's own is a red, which reads as "failed"
                finished_style="cyan" if not glance.status.ended else "green",
            ),
            f"{glance.done}/{glance.intended} done" + (f" · {glance.left}" if glance.left else ""),
        )
        lines = [Text(glance.phase, style="dim")]
        for word in glance.words:  # a figure does not lose its noun at a line's end
            if lines[-1].cell_len + len(f" · {word}") <= self._console.width:
                lines[-1].append(" · ")
            else:
                lines.append(Text(style="dim"))
            lines[-1].append(word, style=_alarm(glance, word))
        return Group(bar, *lines)


def _alarm(glance: Glance, word: str) -> str:
    """Holes are missing results, refusals are late ones that were kept out: the eye should find both."""
    if glance.holes and "hole" in word:
        return "bold red not dim"
    return "yellow not dim" if glance.refused and "refused" in word else ""
