"""`evalbus replay`: a history, from a file or from the server, decided again and compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.port import BatchStatus, Counters
from bus.replay.lines import Footer, Header
from bus.replay.replayed import Replay, Replayed
from bus.replay.telling import DiffersError, Told
from bus.types import BatchId
from workers.brief import brief
from workers.histories.exporting import exported_lines
from workers.histories.history_files import LONGEST_LINE, name_of, reading
from workers.results.derived import Derived, Deriving
from workers.results.fetching import existing, info_of
from workers.ticking import ticking

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "batches_of",
    "derive_batch",
    "derive_file",
    "heads_of",
    "replay_batch",
    "replay_file",
    "show",
    "show_joint",
]

_HEAD = re.compile("[0-9a-f]{64}")
_SHOWN = 80  # characters of one that is none
_TICK = 20_000  # lines between two looks at the progress
_Watcher = Callable[[Header | Told | Footer], None]


def _nobody(said: Header | Told | Footer) -> None:
    """Look away."""


def replay_file(file: str | Path, head: str | None, watch: _Watcher = _nobody) -> Replayed:
    """Replay an export; `-` is standard input. `head`: the chain's, as it was written down elsewhere.

    `watch` is shown each line when it has been derived again.

    Raises InputError for what is no export, or not all of one; DiffersError at the first line that is not true.
    """
    return derive_file(file, head, watch).found


def derive_file(file: str | Path, head: str | None, watch: _Watcher = _nobody) -> Derived:
    """The same, with what the batch declared."""
    _check_head(head)
    deriving = Deriving(name_of(file))
    with reading(file) as lines, ticking("entries") as tick:
        while raw := lines.readline(LONGEST_LINE):
            watch(deriving.feed(raw))
            if deriving.replay.entries % _TICK == 0:
                tick(deriving.replay.entries)
        derived = deriving.finish()
    _compare_head(deriving.replay.source, derived.found, head)
    return derived


async def batches_of(bus: ServerBus, name: BatchId) -> list[BatchId]:
    """What there is to replay under a name: a batch, or its partitions. Raises InputError."""
    return (await existing(bus, name)).batches


def heads_of(heads: Sequence[str], named: str, count: int) -> list[str | None]:
    """The head that each of so many histories is to have; None where none was given. Raises InputError."""
    for one in heads:
        _check_head(one)
    if not heads:
        return [None] * count
    if len(heads) != count:
        what = "has one history" if count == 1 else f"is kept in {count} partitions, each with a chain of its own"
        times = "once" if len(heads) == 1 else f"{len(heads)} times"
        raise InputError(
            f"{named!r} {what}, and --head is given {times}",
            remedy="one, or none" if count == 1 else "one for each, in their order, or none",
        )
    return [*heads]


async def replay_batch(
    bus: ServerBus, batch: BatchId, head: str | None, watch: _Watcher = _nobody, archive: Path | None = None
) -> Replayed:
    """Replay a batch as it stands on the server, and compare what it came to with what is counted there.

    `watch`: see `replay_file`. `archive`: where its history was archived while it ran.

    Raises InputError when there is none of that name; DiffersError.
    """
    return (await derive_batch(bus, batch, head, watch, archive)).found


async def derive_batch(
    bus: ServerBus, batch: BatchId, head: str | None, watch: _Watcher = _nobody, archive: Path | None = None
) -> Derived:
    """The same, with what the batch declared."""
    _check_head(head)
    info = await info_of(bus, batch)
    deriving = Deriving(f"batch {batch}")
    replay = deriving.replay
    with ticking("entries") as tick:
        async for raw in exported_lines(bus, batch, info, archive):
            watch(deriving.feed(raw))
            if replay.entries % _TICK == 0:
                tick(replay.entries)
    derived = deriving.finish()
    counters = await bus.counters(batch)
    one = await bus.of(batch)
    newer = await one.link.command("XRANGE", one.keys(batch).history, f"({replay.last}", "+", "COUNT", 1)
    if not newer:  # else the batch has gone on while it was read
        _compare_counters(replay, derived.found, counters)
    _compare_head(replay.source, derived.found, head)
    return derived


def _compare_counters(replay: Replay, found: Replayed, counters: Counters) -> None:
    """What the server counts, beside what the decisions add up to."""
    pairs: dict[str, tuple[object, object]] = {
        "bins": (dict(counters.bins), dict(found.bins)),
        "refusals": (dict(counters.refusals), dict(found.refusals)),
        "holes": (counters.holes, len(found.holes)),
    }
    for name in ("spent", "durable", "reserved", "effects_open", "stuck"):
        pairs[name] = (getattr(counters, name), getattr(found, name))
    for name, (recorded, derived) in pairs.items():
        if recorded != derived:
            problem = f"the batch's {name}: recorded {recorded}, derived {derived}"
            raise DiffersError(replay.source, replay.entries + 2, problem)


def _check_head(head: str | None) -> None:
    """One that was copied in part is a slip, and says nothing of the history. Raises InputError."""
    if head is not None and not _HEAD.fullmatch(head):
        raise InputError(f"--head: {brief(head, _SHOWN)!r} is no head of a chain", remedy="64 digits: 0 to 9, a to f")


def _compare_head(source: str, found: Replayed, head: str | None) -> None:
    if head is not None and head != found.head:
        problem = f"it is whole, and another history than the one that was meant: head {found.head}, expected {head}"
        raise DiffersError(source, found.entries + 2, problem)


def show(found: Replayed, console: Console) -> None:
    """What was examined, and the number that it leads to."""
    console.print(f"batch {found.batch} ({found.plane}): {_state(found)}", markup=False, soft_wrap=True)
    fences = {name: count for name, count in sorted(found.decisions.items()) if name != "run"}
    steps = found.decisions.get("run", 0)
    shown = ", ".join(f"{name} {count:,}" for name, count in fences.items())
    console.print(f"{found.entries:,} entries in one chain, head {found.head}", markup=False, soft_wrap=True)
    console.print(f"{sum(fences.values()):,} decisions derived again: {shown}", markup=False, soft_wrap=True)
    many = "1 entry of a step itself" if steps == 1 else f"{steps:,} entries of steps themselves"
    console.print(f"{many}, read but not derived", markup=False, soft_wrap=True)
    _show_number(found, console)


def show_joint(derived: Derived, console: Console) -> None:
    """Of partitions, each of which was shown: the number that they lead to together."""
    found, count = derived.found, len(derived.parts)
    console.print(f"batch {found.batch} ({found.plane}): {_state(found)}, {count} partitions together", markup=False)
    _show_number(found, console)


def _state(found: Replayed) -> str:
    return BatchStatus(found.status).shown


def _show_number(found: Replayed, console: Console) -> None:
    bins = ", ".join(f"{name} {count:,}" for name, count in found.bins.items())
    console.print(f"runs: {bins}, holes {len(found.holes):,}", markup=False, soft_wrap=True)
    if found.spent:
        orphan = found.spent - found.durable
        tokens = f"tokens: {found.spent:,} spent, {found.durable:,} durable, {orphan:,} orphan"
        console.print(tokens, markup=False, soft_wrap=True)
    named = f"snapshot {found.snapshot_id}" if found.snapshot_id else "no snapshot: the batch has not ended"
    console.print(named, markup=False, soft_wrap=True)
