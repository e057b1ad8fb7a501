"""`evalbus review`: scores that wait for a person, because another judge answered than the one that was bound.

Under the policy `review` such a run is parked: it has no verdict, its batch cannot close, and after the suite's time it
becomes the hole `unreviewed`. Until then somebody may have it judged again, by the judge that is bound (whose endpoint
may have been put right), or give it up at once. Nobody can accept the verdict of a judge that was not bound: that is
what `evalbus rescore` is for, whose histogram says which judge made it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.port import Ref
from bus.types import Gen, LeaseId, RunId
from workers.brief import brief
from workers.explaining.reading import run_named
from workers.naming import batch_name
from workers.results.fetching import existing
from workers.results.whole import Placed, parked_in, runs_of

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["give_up", "judge_again", "show"]

_DETAIL = 200  # characters of why a run is parked


async def show(bus: ServerBus, batch: str, console: Console) -> None:
    """The parked runs, one a line, with what the judge that answered said of itself."""
    parked = await parked_in(bus, await existing(bus, batch_name(batch)))
    if not parked:
        console.print(f"no run of {batch} waits for a review", soft_wrap=True, markup=False)
    for one in parked:
        console.print(f"{one.row.run}   {brief(one.row.detail, _DETAIL)}", soft_wrap=True, markup=False)


async def judge_again(bus: ServerBus, batch: str, runs: Sequence[str], console: Console) -> None:
    """Bind parked runs anew to the candidate and the judge that the batch declared, and have them judged."""
    for one in await _named(bus, batch, runs):
        spec, row = one.at.spec, one.row
        decision = await bus.rebind(spec.batch, row.run, row.judge_epoch, spec.candidate, spec.judge)
        _tell(row.run, "will be judged again", decision.applied, decision.reason, console)


async def give_up(bus: ServerBus, batch: str, runs: Sequence[str], console: Console) -> None:
    """End parked runs as the hole `unreviewed`."""
    for one in await _named(bus, batch, runs):
        row = one.row
        ref = Ref(one.batch, row.run, LeaseId(""), Gen(row.epoch))
        decision = await bus.score_hole(ref, "unreviewed", f"given up in review: {row.detail}")
        _tell(row.run, "is a hole, unreviewed", decision.applied, decision.reason, console)


def _tell(run: RunId, done: str, applied: bool, why: str | None, console: Console) -> None:
    said = done if applied else f"was left as it is: {why}"
    console.print(f"{run}   {said}", soft_wrap=True, markup=False)


async def _named(bus: ServerBus, batch: str, runs: Sequence[str]) -> list[Placed]:
    """The runs that were named; all of them must be waiting, or nothing is done to any."""
    whole = await existing(bus, batch_name(batch))
    waiting = {one.row.run: one for one in await parked_in(bus, whole)}
    known: Collection[str] = waiting.keys()
    if not waiting.keys() >= set(runs):  # a case may be meant, or a run that does not wait
        known = (await runs_of(bus, whole)).keys()
    named = [run_named(batch, run, known) for run in runs]
    for run in named:
        if run not in waiting:
            raise InputError(
                f"run {run!r} of batch {batch!r} waits for no review",
                remedy=f"see which do: evalbus review {batch}",
            )
    return [waiting[run] for run in dict.fromkeys(named)]
