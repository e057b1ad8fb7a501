"""`evalbus status` and `evalbus server status`: what is where. Counts of an open batch are progress, never a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bus.port import RunState
from bus.redis_bus import RedisBus
from bus.server import ServerStatus
from workers.job import batch_name, fetch_outcome
from workers.outcome import render

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show_all", "show_one", "show_server"]

_MANY = 20  # runs named one by one


async def show_all(bus: RedisBus, console: Console) -> None:
    """A line a batch."""
    from rich.table import Table  # noqa: PLC0415

    batches = await bus.all_batches()
    if not batches:
        console.print("no batches on this server", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("batch", "state"):
        table.add_column(title, no_wrap=True)
    for title in ("runs", "admitted", "running", "sealed", "scored", "holes", "refused"):
        table.add_column(title, justify="right", no_wrap=True)
    for name in sorted(batches):
        counts = await bus.counters(name)
        table.add_row(
            name, counts.status.value, str(counts.intended), str(counts.admitted), str(counts.running),
            str(counts.sealed + counts.scoring), str(counts.scored), str(counts.holes),
            str(sum(counts.refusals.values())),
        )  # fmt: skip
    console.print(table)


async def show_one(bus: RedisBus, batch: str, console: Console) -> None:
    """One batch: its result when it has ended, else who holds what."""
    name = batch_name(batch)
    outcome = await fetch_outcome(bus, name)
    render(outcome, console)
    if outcome.status.ended:
        return
    counts = await bus.counters(name)
    line = (
        f"progress   {counts.admitted} of {counts.intended} admitted · {counts.running} running · "
        f"{counts.sealed} sealed · {counts.scoring} scoring · {counts.scored} scored · {counts.holes} holes"
    )
    console.print(line, soft_wrap=True, markup=False)
    held = [row for row in await bus.rows(name, await bus.run_ids(name)) if row.state in _HELD]
    for row in held[:_MANY]:
        token = f"gen {row.gen}" if row.state is RunState.RUNNING else f"epoch {row.epoch}"
        text = f"  {row.run}   {row.state.value} by {row.consumer}, {token}, delivery {_delivery(row.state, row)}"
        console.print(text, soft_wrap=True, markup=False)
    if len(held) > _MANY:
        console.print(f"  and {len(held) - _MANY} more", markup=False)
    parked = await bus.parked(name)
    if parked:
        console.print(f"parked     {', '.join(parked[:_MANY])}: another judge answered than was bound", markup=False)


_HELD = (RunState.RUNNING, RunState.SCORING)


def _delivery(state: RunState, row: object) -> int:
    return int(getattr(row, "attempts" if state is RunState.RUNNING else "score_attempts"))


def show_server(status: ServerStatus, console: Console) -> None:
    """The private server, field by field."""
    console.print(str(status), soft_wrap=True, markup=False)
