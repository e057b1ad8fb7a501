"""Rescoring: the sealed runs of a closed batch under another judge.

A score is signed once. Another opinion on the same answers is another batch: it takes the runs over as they were sealed
(`lua/run/adopt.lua`), has them scored by its own suite's scorer, and closes over its own histogram. The first batch is
read and never written to, so both numbers stand, over the same answers, each with the judge that it is bound to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bus.errors import InputError
from bus.port import BatchInfo, BatchSpec, Bus
from bus.types import BatchId, RunId
from workers.suite import Suite

__all__ = ["check_source", "next_name", "origin_of"]


def next_name(source: BatchId, taken: Collection[str]) -> BatchId:
    """`<source>.rescored-<n>`, the first that nobody has."""
    number = 1
    while (name := f"{source}.rescored-{number}") in taken:
        number += 1
    return BatchId(name)


async def origin_of(bus: Bus, spec: BatchSpec) -> BatchId:
    """Where the transcripts and artifacts of a batch's runs are: itself, or the batch in which they were sealed.

    What is scored anew in turn was sealed before the batch that it is taken from. Raises InputError for a batch on the
    way that has gone.
    """
    at = spec
    while at.source:
        found = await bus.info(BatchId(at.source))
        if found is None:
            raise InputError(
                f"batch {at.batch!r} scores the runs of batch {at.source!r} anew, which is not on this server"
            )
        at = found.spec
    return at.batch


def check_source(source: BatchInfo, runs: Sequence[RunId], suite: Suite) -> None:
    """Whether the runs of a batch can be scored by this suite. Raises InputError.

    `runs`: those of the source. Each must be one of the suite's, and the other way round: a run that is missing would
    be missing from the denominator.
    """
    name = source.spec.batch
    if not source.status.ended:
        raise InputError(
            f"batch {name!r} is still {source.status.shown}: what is scored anew is what it sealed, all of it",
            remedy=f"go on with it, or wait: evalbus status {name}",
        )
    there, here = set(runs), set(suite.run_ids())
    if missing := sorted(there - here):
        raise InputError(
            f"run {missing[0]!r} of batch {name!r} is none of this suite's: it has other cases, or fewer trials",
            file=suite.source,
            remedy="the judge's suite has the same case ids and trials as the suite of the batch",
        )
    if missing := sorted(here - there):
        raise InputError(
            f"run {missing[0]!r} of this suite is none of batch {name!r}'s: it has other cases, or fewer trials",
            file=suite.source,
            remedy="the judge's suite has the same case ids and trials as the batch (some of them: --limit, --case)",
        )
