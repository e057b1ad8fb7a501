"""The batch that a command is about: created for its suite, or found there as this suite's.

A batch that is scored anew is created from the one whose sealed runs it takes over (`workers.rescoring`). One that is
kept in partitions is as many batches, and created or found as one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from bus.cluster import ServerBus
from bus.errors import InputError
from bus.imported.looking import only_for_looking
from bus.partitions import root_of, split
from bus.port import BatchInfo, BatchSpec, BatchStatus
from bus.types import BatchId, Plane
from workers.batch_spec import spec_of, specs_of
from workers.bundle import BundleKey, publish
from workers.job_options import JobOptions
from workers.judging.binding import other_judge
from workers.modelling.table import other_model
from workers.naming import new_batch_name
from workers.rescoring import check_source, next_name, origin_of
from workers.results.fetching import existing
from workers.results.whole import Whole, whole_of
from workers.suite import Suite

__all__ = ["created", "fresh_name"]


async def fresh_name(bus: ServerBus, suite: Suite, source: BatchId | None) -> BatchId:
    """A name that no batch has, of the suite's name and the time, or of the batch that is scored anew."""
    known = await bus.all_batches()
    taken = {*known, *(root_of(name) for name in known)}
    if source is not None:
        return new_batch_name(next_name(source, taken))
    base = f"{(suite.name or '').lstrip('-.') or 'batch'}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    names = [base, *(f"{base}.{number}" for number in range(2, 1_000))]
    return new_batch_name(next(name for name in names if name not in taken))


async def created(bus: ServerBus, suite: Suite, name: BatchId, options: JobOptions, key: BundleKey | None) -> Whole:
    """The batch of this name: created, or found as it stands. `key` signs its bundle, where there is one to be.

    Raises InputError when what is there under the name is not what this command is about.
    """
    whole = await whole_of(bus, name)
    if whole is not None:
        spec = whole.info.spec
        if options.limit is None and not options.cases and spec.suite_digest == suite.digest:
            suite = suite.made_with(spec.intended, spec.cases)
        _check_ours(whole, suite, options)
    if options.source is None:
        specs = specs_of(suite, name, options.plane)
    else:
        specs = await _rescorings(bus, options.source, suite, name, options.plane)
    if whole is not None and whole.has_ended:  # not declared again: that would add a line to a closed history
        return whole
    for spec in specs:
        await _create(bus, spec, suite, key)
    whole = await whole_of(bus, name)
    assert whole is not None, "what was created is there"
    return whole


def _check_ours(whole: Whole, suite: Suite, options: JobOptions) -> None:
    """Whether what is there under the batch's name is what this command is about. Raises InputError."""
    info = whole.info
    if info.imported:
        raise only_for_looking(info.spec.batch)
    if info.spec.part is not None:
        whole_name = root_of(info.spec.batch)
        raise InputError(f"{info.spec.batch!r} is a partition", remedy=f"go on with the whole: --batch {whole_name}")
    if info.spec.suite_digest != suite.digest or info.spec.source != (options.source or ""):
        raise _another(info, suite)
    if (info.spec.intended, info.spec.cases) != (suite.intended, suite.chosen_cases):
        others = "other cases" if info.spec.intended == suite.intended else f"not {suite.intended:,}"
        raise InputError(
            f"batch {info.spec.batch!r} has {info.spec.intended:,} runs, {others}",
            remedy="leave --limit and --case out to go on with it, or choose another --batch",
        )


async def _rescorings(bus: ServerBus, source: BatchId, suite: Suite, name: BatchId, plane: Plane) -> list[BatchSpec]:
    """What is declared to score a batch anew: one batch beside it, or one beside each of its partitions."""
    whole = await existing(bus, source)
    if whole.info.imported:  # what it sealed is not in its history, but by name
        raise only_for_looking(source)
    status = whole.info.status
    ids = [run for batch in whole.batches for run in await bus.run_ids(batch)] if whole.has_ended else []
    check_source(replace(whole.info, status=status if whole.has_ended else BatchStatus.OPEN), ids, suite)
    if whole.info.spec.part is not None:
        raise InputError(f"{source!r} is a partition", remedy=f"score the whole anew: {root_of(source)}")
    specs = split(spec_of(suite, name, whole.info.spec, plane), whole.of)
    for spec in specs:
        await bus.put_beside(spec.batch, BatchId(spec.source))
        await origin_of(bus, spec)  # what was sealed is needed, and may have gone before what was made of it
    return specs


async def _create(bus: ServerBus, spec: BatchSpec, suite: Suite, key: BundleKey | None) -> None:
    """Create one batch, or find it there. Raises InputError for another of its name."""
    if key is not None:
        await publish(bus, spec.batch, suite, key)  # before anybody can find the batch and miss its bundle
    decision = await bus.create(spec)
    if not decision.applied:
        info = await bus.info(spec.batch)
        assert info is not None, "what was not created is there"
        raise _another(info, suite)


def _another(info: BatchInfo, suite: Suite) -> InputError:
    if info.spec.source:
        return InputError(
            f"batch {info.spec.batch!r} exists and scores batch {info.spec.source!r} anew, "
            f"with suite {info.spec.suite!r} ({info.spec.suite_digest[:12]})",
            remedy="choose another --batch",
        )
    if info.spec.suite_digest == suite.digest and info.spec.judge != suite.judge:
        return other_judge(info.spec.batch, info.spec.judge, suite.judge)
    if info.spec.suite_digest == suite.digest and suite.target is not None:
        return other_model(info.spec.batch, info.spec.candidate, suite.target)
    return InputError(
        f"batch {info.spec.batch!r} exists and was made from another suite, or another state of it: "
        f"{info.spec.suite_digest[:12]} there, {suite.digest[:12]} here",
        remedy="choose another --batch, or restore the suite",
    )
