"""A count on a terminal's standard error while something long goes on; nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from workers.terminals import can_redraw, console_on

__all__ = ["Tick", "ticking"]

Tick = Callable[[int], None]


@contextlib.contextmanager
def ticking(noun: str, *, among: TextIO | None = None) -> Iterator[Tick]:
    """`noun`: what is counted, in the plural. The function that is given is told the count so far.

    `among`: where lines are written meanwhile. If that is a terminal too, the count would stand among them.
    """
    if not can_redraw(sys.stderr) or (among is not None and among.isatty()):
        yield lambda _: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console_on(sys.stderr), transient=True) as bar:
        task = bar.add_task(f"0 {noun}")
        yield lambda count: bar.update(task, description=f"{count:,} {noun}")
