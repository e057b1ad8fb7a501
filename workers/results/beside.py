"""`evalbus show BATCH --beside OTHER`: the runs that came out otherwise than in another batch, with both answers.

That a rate has moved by two runs says nothing about why; the two answers do. Runs are paired by their name, so both
batches have the same cases. Either may be on a server, or a history that was exported from one.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bus.cluster import ServerBus
from bus.types import RunId
from workers.brief import brief
from workers.cases import Json
from workers.files import write_whole
from workers.naming import batch_name
from workers.results.columns import columns_on, without_empty_end
from workers.results.fetching import existing
from workers.results.showing import Shown, check_only, shown_of, verdict_of
from workers.results.whole import rows_of

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Side", "show_beside", "side_of"]

_CELL: Final = 40
_HEAD: Final = ("run", "there", "here", "answer there", "answer here", "target")


@dataclass(frozen=True, slots=True)
class Side:
    """A batch: what its runs came to, in the order of its suite, and the way to what they answered."""

    verdicts: Mapping[RunId, str]
    shown: Callable[[Collection[RunId]], Awaitable[Mapping[RunId, Shown]]]


async def side_of(bus: ServerBus, batch: str, suite: Path | None) -> Side:
    """One on a server. Raises InputError when there is none of that name."""
    whole = await existing(bus, batch_name(batch))
    verdicts = {each.row.run: verdict_of(each.row) for each in await rows_of(bus, whole)}

    async def shown(runs: Collection[RunId]) -> Mapping[RunId, Shown]:
        return await shown_of(bus, whole, runs, suite)

    return Side(verdicts, shown)


async def show_beside(here: Side, there: Side, only: Sequence[str], output: Path | None, console: Console) -> None:
    """A line a run, or JSON lines in `output`. `only`: verdicts here. Raises InputError for one that no run has."""
    check_only(only, set(here.verdicts.values()))
    both = [run for run in here.verdicts if run in there.verdicts]
    other = [run for run in both if here.verdicts[run] != there.verdicts[run]]
    wanted = [run for run in other if not only or here.verdicts[run] in only]
    now, before = await here.shown(frozenset(wanted)), await there.shown(frozenset(wanted))
    pairs = [(before[run], now[run]) for run in wanted]
    if output is not None:
        write_whole(output, "".join(json.dumps(_line(*pair), ensure_ascii=False) + "\n" for pair in pairs))
        console.print(f"{len(pairs):,} runs in {output}", soft_wrap=True, markup=False)
    elif pairs:
        for line in columns_on(console, _table(pairs)):
            console.print(line, soft_wrap=True, markup=False)
    alone = len({*here.verdicts} ^ {*there.verdicts})
    rest = f" · {alone:,} are in one of the two only" if alone else ""
    console.print(f"{len(other):,} of {len(both):,} runs came out otherwise{rest}", soft_wrap=True, markup=False)


def _line(before: Shown, now: Shown) -> dict[str, Json]:
    there = {name: value for name, value in before.as_json().items() if name not in ("run", *_OF_THE_CASE)}
    return {**now.as_json(), "there": there}


_OF_THE_CASE: Final = ("input", "target", "metadata")


def _table(pairs: Sequence[tuple[Shown, Shown]]) -> list[list[str]]:
    rows = []
    for before, now in pairs:
        said = [brief(one.said, _CELL) or "-" for one in (before, now)]
        rows.append([now.run, before.verdict, now.verdict, *said, brief(now.told()["target"], _CELL)])
    return without_empty_end(_HEAD, rows)
