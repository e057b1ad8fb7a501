"""A closed batch of an Inspect task as an `.eval` log: Inspect's own header, samples, metrics and file.

Each run is one sample, once: what was sealed, with the scores that were accepted for it, both compared with the digests
that the batch recorded. A run without a score, a hole, stands there as a sample with an error, and counts as 0 in every
metric: Inspect would leave it out, and 8 right of 10 with 2 lost would read 1.0. So a metric of the log is the lowest
that the batch allows; `evalbus` in the log's metadata has the rate of what was scored, the bounds and the refusals.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inspect_ai import eval_async
from inspect_ai.event import ModelEvent
from inspect_ai.log import (
    EvalError,
    EvalLog,
    EvalSample,
    EvalStats,
    condense_sample,
    recompute_metrics,
    write_eval_log_async,
)
from inspect_ai.model import ModelUsage
from inspect_ai.scorer import Score, Value

from bus.cluster import ServerBus
from bus.errors import InputError, ViolationError
from bus.imported.looking import only_for_looking
from bus.port import BatchInfo, BatchStatus, RunRow, RunState
from bus.types import BatchId, Digest
from workers.files import check_writable, writing_whole
from workers.inspecting.loading import Loaded
from workers.inspecting.quiet import IN_MEMORY, quiet
from workers.inspecting.sealed import SealedSample, Verdict
from workers.rescoring import origin_of
from workers.results.fetching import fetch_outcome, info_of
from workers.results.outcome import Outcome
from workers.results.whole import whole_of
from workers.scorer import head_of
from workers.suite import Suite

__all__ = ["LogExport", "export_log"]


@dataclass(frozen=True, slots=True)
class LogExport:
    """What was written."""

    samples: int
    holes: int


@dataclass(frozen=True, slots=True)
class _Told:
    """One run: its row, the batch (or partition) where it is, and its sample."""

    row: RunRow
    batch: BatchId
    sample: EvalSample


async def export_log(bus: ServerBus, batch: BatchId, file: Path, load: Callable[[str], Suite]) -> LogExport:
    """Write the log of a batch that has ended. `load` gets the suite that the batch was made at, or a copy of it.

    Raises InputError for a batch that is open, is of another kind of suite, or whose suite is not at hand; and
    ViolationError when what is kept is not what the batch recorded.
    """
    check_writable(file)
    whole = await whole_of(bus, batch)
    if whole is None:
        await info_of(bus, batch)  # says so, and what was meant
        raise AssertionError
    if whole.info.imported:
        raise only_for_looking(batch)
    outcome = await fetch_outcome(bus, batch)
    if not outcome.status.ended:
        raise InputError(f"batch {batch!r} is open", remedy="a log is made of one that has closed")
    suite = await asyncio.to_thread(load, whole.info.spec.suite_path)
    loaded = _of_this_batch(suite, whole.info)
    told: dict[tuple[str, int], _Told] = {}
    for part in whole.parts:
        name, origin = part.spec.batch, await origin_of(bus, part.spec)
        for row in await bus.rows(name, await bus.run_ids(name)):
            sample = await _sample(bus, part, row, suite, loaded, origin)
            key = (str(sample.id), sample.epoch)
            if key in told:
                raise ViolationError(f"batch {batch!r}: sample {key[0]!r}, epoch {key[1]}, is there twice")
            told[key] = _Told(row, name, sample)
    log = await _header(loaded)
    log.samples = [one.sample for one in _ordered(told.values(), suite)]
    _fill_holes(log)
    recompute_metrics(log)
    for one in told.values():
        one.sample.metadata = {**one.sample.metadata, "evalbus": _of_run(one)}
    _close(log, outcome)
    with tempfile.TemporaryDirectory(prefix="evalbus-log-") as place:
        written = Path(place) / "log.eval"
        await write_eval_log_async(log, str(written), format="eval")
        with writing_whole(file) as out:
            out.write(written.read_bytes())
    return LogExport(len(told), outcome.hole_count)


def _of_this_batch(suite: Suite, info: BatchInfo) -> Loaded:
    if suite.place.task is None:
        raise InputError(
            f"batch {info.spec.batch!r} is not of an Inspect task", remedy="export its history: FILE.jsonl"
        )
    if suite.digest != info.spec.suite_digest:
        raise InputError(
            f"batch {info.spec.batch!r} was made from another state of suite {info.spec.suite!r}: "
            f"{info.spec.suite_digest[:12]} there, {suite.digest[:12]} here",
            remedy="give an unchanged copy: --suite inspect:FILE.py@task",
        )
    return suite.place.task


async def _sample(
    bus: ServerBus, info: BatchInfo, row: RunRow, suite: Suite, loaded: Loaded, origin: BatchId
) -> EvalSample:
    """One run as a sample, scored or with its error. `origin`: where it was sealed. Raises ViolationError."""
    of_task = loaded.samples[suite.case_of(row.run).id]
    trial = suite.trial_of(row.run)
    if row.state is not RunState.SCORED:
        return EvalSample(
            id=of_task.id if of_task.id is not None else "",
            epoch=trial,
            input=of_task.input,
            choices=of_task.choices,
            target=of_task.target,
            metadata=dict(of_task.metadata or {}),
            error=EvalError(message=f"{row.hole}: {row.detail}".rstrip(": "), traceback="", traceback_ansi=""),
        )
    batch = info.spec.batch
    events = await bus.transcript(origin, row.run)
    if head_of(events) != row.head:
        raise ViolationError(f"batch {batch!r}: the transcript of {row.run} does not end in the head that was sealed")
    answer = json.loads(events[-1].payload)
    text = answer.get("text")
    if text is None:
        text = (await bus.get_blob(origin, Digest(answer["artifact"]))).decode()
    sample = SealedSample.loads(text).sample
    if (str(sample.id), sample.epoch) != (str(of_task.id), trial):
        raise ViolationError(f"batch {batch!r}: {row.run} sealed sample {sample.id!r}, epoch {sample.epoch}")
    try:
        kept = Digest(json.loads(row.value)["verdict"])
    except (ValueError, KeyError, TypeError):
        raise ViolationError(f"batch {batch!r}: the value of {row.run} names no verdict") from None
    verdict = Verdict.loads(await bus.get_blob(batch, kept))
    sample.scores = verdict.scores
    sample.events = [*sample.events, *verdict.events]
    sample.model_usage = _used([sample.model_usage, *_of_graders(verdict)])
    return condense_sample(sample)


def _of_graders(verdict: Verdict) -> Iterator[dict[str, ModelUsage]]:
    """What the scorers' own model calls used."""
    for event in verdict.events:
        if isinstance(event, ModelEvent) and event.output.usage is not None:
            yield {event.model: event.output.usage}


def _used(usages: Iterable[Mapping[str, ModelUsage]]) -> dict[str, ModelUsage]:
    total: dict[str, ModelUsage] = {}
    for usage in usages:
        for name, used in usage.items():
            total[name] = total[name] + used if name in total else used
    return total


def _ordered(told: Iterable[_Told], suite: Suite) -> list[_Told]:
    """As Inspect orders them: the samples of the first epoch, then of the next."""
    place = {case.id: number for number, case in enumerate(suite.cases)}
    return sorted(told, key=lambda one: (one.sample.epoch, place[suite.case_of(one.row.run).id]))


async def _header(loaded: Loaded) -> EvalLog:
    """The log's header as Inspect makes it of the task itself; nothing is run."""
    quiet()
    [log] = await eval_async(
        copy(loaded.task),
        model=loaded.model,
        log_dir=IN_MEMORY,
        epochs=loaded.table.epochs,
        limit=loaded.table.limit,
        run_samples=False,
        acp_server=False,
        ctl_server=False,
    )
    return log


def _fill_holes(log: EvalLog) -> None:
    """Give each sample without a score one that counts as 0, of the shape that the scorer's others have."""
    shapes: dict[str, Value] = {}
    for sample in log.samples or []:
        for name, score in (sample.scores or {}).items():
            shapes.setdefault(name, score.value)
    if not shapes:
        shapes = {scorer.name: "N" for scorer in log.eval.scorers or []}
    for sample in log.samples or []:
        if sample.error is not None:
            said = sample.error.message
            sample.scores = {name: Score(value=_nothing(shape), explanation=said) for name, shape in shapes.items()}


def _nothing(shape: Any) -> Any:  # noqa: ANN401 - a score's value
    """No answer, where another value would be: N, which is 0, for a letter; 0 for a number."""
    if isinstance(shape, Mapping):
        return {name: _nothing(value) for name, value in shape.items()}
    if isinstance(shape, list):
        return [_nothing(value) for value in shape]
    return "N" if isinstance(shape, str) else False if isinstance(shape, bool) else 0


def _of_run(one: _Told) -> dict[str, Any]:
    row = one.row
    told = {"run": row.run, "gen": row.gen, "attempts": row.attempts, "epoch": row.epoch, "sealed": row.digest}
    return told | ({"hole": row.hole} if row.state is RunState.HOLE else {"bin": row.bin, "value": row.value})


def _close(log: EvalLog, outcome: Outcome) -> None:
    """The end of the log, and what evalbus knows of it."""
    samples = log.samples or []
    log.status = "success"
    if outcome.status is not BatchStatus.CLOSED:
        log.status = "error"
        said = f"below its quorum: {outcome.accepted} of {outcome.intended} runs were scored, {outcome.quorum} needed"
        log.error = EvalError(message=said, traceback="", traceback_ansi="")
    log.stats = EvalStats(
        started_at=min((sample.started_at for sample in samples if sample.started_at), default=""),
        completed_at=max((sample.completed_at for sample in samples if sample.completed_at), default=""),
        model_usage=_used(sample.model_usage for sample in samples),
    )
    known = outcome.as_json()
    del known["runs"], known["gate"]
    log.eval.metadata = {**(log.eval.metadata or {}), "evalbus": known}
