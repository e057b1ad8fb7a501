"""`evalbus status` and `evalbus server status`: what is where. Counts of an open batch are progress, never a rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bus.cluster import ServerBus
from bus.errors import NewerBatch
from bus.held_loops import HeldLoop, held_loops
from bus.port import BatchStatus, Counters, IntentState, RunRow, RunState
from bus.server import ServerStatus
from bus.tombstones import PrunedError
from bus.types import BatchId
from workers.naming import batch_name
from workers.processes.held_loops import said_of
from workers.processes.rests import rests_of
from workers.results.columns import columns_on
from workers.results.fetching import fetch_outcome
from workers.results.outcome import render
from workers.results.progress import refused_of, state_of
from workers.results.whole import Whole, counters_of, parked_in, rows_of, whole_of, wholes

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show_all", "show_one", "show_server"]

_TEXT_COLUMNS = 2  # the first two are text, and the last one, the others numbers
_MANY = 20  # runs, and calls, named one by one
_AT_ONCE = 500  # runs in one read

_DOUBTS = {
    IntentState.AWAITING_ACK: "sent, and not answered yet",
    IntentState.COMPENSATING: "being undone",
    IntentState.STUCK: "stuck: nobody knows whether its effect stands",
}


async def show_all(bus: ServerBus, console: Console) -> None:
    """A line a batch, in columns; never cut, so that a name can be copied. Pruned ones are shown when asked for."""
    known = [name for name, at in (await bus.all_batches()).items() if at is not BatchStatus.PRUNED]
    titles = ["batch", "state", "runs", "admitted", "running", "sealed", "scored", "holes", "refused", "bins"]
    lines = [titles]
    found = await wholes(bus, known)
    for whole in found:
        counts = await counters_of(bus, whole)
        first_of = whole.info.spec.first_of
        runs = counts.intended if first_of is None else f"{counts.intended} of {first_of}"
        numbers = (
            runs, counts.admitted, counts.running, counts.sealed + counts.scoring, counts.scored,
            counts.holes, refused_of(counts),
        )  # fmt: skip
        bins = " · ".join(f"{name} {counts.bins.get(name, 0)}" for name in whole.info.spec.bins)
        lines.append([whole.name, state_of(counts), *map(str, numbers), bins if counts.status.ended else ""])
    await _show_rests(bus, console)
    for name in sorted({*known}.difference(*(whole.batches for whole in found))):
        try:
            await bus.info(name)
        except NewerBatch as newer:
            console.print(f"not shown  {newer}", soft_wrap=True, markup=False)
        except PrunedError:
            continue
    if len(lines) == 1:
        console.print("no batches on this server", markup=False)
        return
    for row in columns_on(console, lines, range(_TEXT_COLUMNS, len(titles) - 1)):
        console.print(row, soft_wrap=True, markup=False)


async def show_one(bus: ServerBus, batch: str, console: Console) -> None:
    """One batch: its result when it has ended, else who holds what."""
    name = batch_name(batch)
    outcome = await fetch_outcome(bus, name)
    render(outcome, console)
    whole = await whole_of(bus, name)
    assert whole is not None, "it was there"
    counts = await counters_of(bus, whole)
    if whole.is_partitioned:
        _show_parts(whole, console)
    for part in whole.batches:
        for line in await _effects(bus, part, await bus.counters(part)):
            console.print(line, soft_wrap=True, markup=False)
    if outcome.status.ended:
        return
    progress = (
        f"progress   {counts.admitted} of {counts.intended} admitted · {counts.running} running · "
        f"{counts.sealed} sealed · {counts.scoring} scoring · {counts.scored} scored · {counts.holes} holes"
    )
    console.print(progress, soft_wrap=True, markup=False)
    loops = {run: held for part in whole.batches for run, held in (await held_loops(await bus.of(part), part)).items()}
    held = [text for placed in await rows_of(bus, whole) if (text := _holder(placed.row, loops.get(placed.row.run)))]
    for text in held[:_MANY]:
        console.print(text, soft_wrap=True, markup=False)
    if len(held) > _MANY:
        console.print(f"  and {len(held) - _MANY} more", markup=False)
    await _show_rests(bus, console)
    parked = [placed.row.run for placed in await parked_in(bus, whole)]
    if parked:
        console.print(f"parked     {', '.join(parked[:_MANY])}: another judge answered than was bound", markup=False)


async def _show_rests(bus: ServerBus, console: Console) -> None:
    """Who takes nothing now, and why: what waits may wait for them."""
    for one in await rests_of(bus):
        console.print(f"resting    {one.line}", soft_wrap=True, markup=False)


def _show_parts(whole: Whole, console: Console) -> None:
    """Which there are, and how each stands."""
    found = [f"{one.spec.batch} {one.status.shown}" for one in whole.parts]
    missing = f" · {whole.of - len(found)} not declared yet" if len(found) < whole.of else ""
    console.print(f"partitions {' · '.join(found)}{missing}", soft_wrap=True, markup=False)


async def _effects(bus: ServerBus, batch: BatchId, counts: Counters) -> list[str]:
    """Calls of tools whose effect nobody is sure of, by name; none where there are none."""
    if not counts.effects_open and not counts.stuck:
        return []
    lines = [f"effects    {counts.effects_open} calls of tools have not ended · {counts.stuck} stuck"]
    ids = await bus.run_ids(batch)
    for start in range(0, len(ids), _AT_ONCE):
        for row in await bus.rows(batch, ids[start : start + _AT_ONCE]):
            if row.state is not RunState.RUNNING and row.state is not RunState.HOLE:
                continue
            for one in await bus.doubts(batch, row.run):
                lines.append(f"  {one.id}   {one.tool}: {_DOUBTS[one.state]}")
                if len(lines) > _MANY:
                    return [*lines, "  and maybe more"]
    return lines


def _holder(row: RunRow, loop: HeldLoop | None) -> str | None:
    """Who holds a run, under which token; None when nobody does. `loop`: of a worker that had it, if it held that."""
    if row.state is RunState.RUNNING:
        told = f"; {said_of(loop)}" if loop is not None else ""
        return f"  {row.run}   running at {row.consumer}, generation {row.gen}, delivery {row.attempts}{told}"
    if row.state is RunState.SCORING:
        return f"  {row.run}   scored by {row.consumer}, epoch {row.epoch}, delivery {row.score_attempts}"
    return None


def show_server(status: ServerStatus, console: Console) -> None:
    """The private server, field by field."""
    if not status.running:
        lines = ["server     not running", f"data       {status.directory} ({status.aof_bytes:,} bytes)"]
    else:
        stays = "until `evalbus server stop`" if status.pinned else "as long as somebody uses it"
        lines = [
            f"server     valkey {status.version or '(not answering)'}, process {status.pid or '?'}, up {stays}",
            f"url        {status.url or '?'}",
            f"data       {status.directory} ({status.aof_bytes:,} bytes)",
            f"in use     {'yes' if status.in_use else 'no'}",
        ]
    for line in [*lines, *(f"notice     {notice}" for notice in status.notices)]:
        console.print(line, soft_wrap=True, markup=False)
