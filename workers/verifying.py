"""`evalbus verify`: the acceptance rules on this server, and the mutants, as a table."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bus.link import Door
from bus.verify import Verification, check_names, verify
from workers.files import check_writable, write_whole
from workers.results.columns import columns
from workers.runtime import SystemRuntime
from workers.terminals import can_redraw, console_on

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["check_input", "show", "verify_fences"]


def check_input(names: Sequence[str], json_file: Path | None) -> tuple[str, ...]:
    """Before anything starts. Raises InputError."""
    if json_file is not None:
        check_writable(json_file)
    return check_names(names)


async def verify_fences(names: Sequence[str], door: Door, seed: int, json_file: Path | None) -> Verification:
    """Verify, with progress on standard error, and write `json_file` if it is given."""
    with _progress(names) as tick:
        found = await verify(names, door, SystemRuntime(), seed=seed, tick=tick)
    if json_file is not None:
        write_whole(json_file, json.dumps(found.as_json(), indent=1) + "\n")
    return found


@contextlib.contextmanager
def _progress(names: Sequence[str]) -> Iterator[Callable[[str, int], None]]:
    """A bar on a terminal, elsewhere a line when a fence begins."""
    if can_redraw(sys.stderr):
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415

        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console_on(sys.stderr), transient=True) as bar:
            task = bar.add_task("")
            played = dict.fromkeys(names, 0)

            def show_bar(fence: str, count: int) -> None:
                played[fence] += count
                at = list(names).index(fence) + 1
                bar.update(task, description=f"{fence} ({at} of {len(names)}): {played[fence]:,} schedules")

            yield show_bar
        return
    begun: set[str] = set()

    def tell(fence: str, _count: int) -> None:
        if fence not in begun:
            begun.add(fence)
            print(f"{fence} …", file=sys.stderr, flush=True)

    yield tell


def show(found: Verification, console: Console) -> None:
    """A line a property: what was examined, what broke it, and which mutants it caught."""
    titles = ["fence", "property", "examined", "violations", "mutants caught"]
    rows = [titles]
    for line in found.lines:
        caught = [mutant if held else f"{mutant} SURVIVED" for mutant, held in line.mutants.items()]
        examined = f"{line.denominator:,} {line.unit}"
        rows.append([line.fence, line.held, examined, f"{line.violations:,}", ", ".join(caught) or "none"])
    for number, row in enumerate(columns(rows)):
        ok = number == 0 or found.lines[number - 1].ok
        console.print(row, soft_wrap=True, markup=False, style=None if ok else "bold red")
    for line in found.lines:
        for story in line.stories:
            console.print(f"{line.fence}: {line.held}: broken by {story}", soft_wrap=True, markup=False)
    mutants = [held for line in found.lines for held in line.mutants.values()]
    broken = sum(not line.ok for line in found.lines)
    console.print(
        f"seed {found.seed}: {len(found.lines)} properties, {broken} broken; "
        f"{len(mutants)} mutants, {mutants.count(None)} survived",
        soft_wrap=True,
        markup=False,
    )
