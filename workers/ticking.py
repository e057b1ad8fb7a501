"""A count on a terminal's standard error while something long goes on; nothing elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["Tick", "ticking"]

Tick = Callable[[int], None]


@contextlib.contextmanager
def ticking(noun: str) -> Iterator[Tick]:
    """`noun`: what is counted, in the plural. The function that is given is told the count so far."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"0 {noun}")
        yield lambda count: bar.update(task, description=f"{count:,} {noun}")
