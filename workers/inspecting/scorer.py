"""The scorer of a suite with `[inspect]`: the task's own scorers, over what was sealed, in the scorer's process.

`inspect_ai.score_async` rebuilds the state of a sample from a log; here the log is one sealed sample. One thing of a
`TaskState` no log has, which choices were marked: it is restored before the first scorer runs. What only a sandbox has
is gone by then, as it is for `inspect score`: a scorer that asks for one fails, and the run is the hole `scorer_error`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from inspect_ai import score_async
from inspect_ai.event import Event, SpanBeginEvent, SpanEndEvent
from inspect_ai.log import EvalConfig, EvalDataset, EvalLog, EvalSpec
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, metric, scorer, value_to_float
from inspect_ai.solver import TaskState

from workers.cases import Case
from workers.inspecting.background import Background
from workers.inspecting.loading import Loaded
from workers.inspecting.quiet import quiet
from workers.inspecting.sealed import Mark, SealedSample, Verdict
from workers.inspecting.table import InspectTable

__all__ = ["InspectScorer", "UnscoredError", "passes"]

_OURS: Final = "evalbus_marked"
_LONGEST: Final = 80  # characters of a value as it stands beside the artifact's digest


class UnscoredError(Exception):
    """There is no score that says whether the run passed; `str(error)` is one line."""


class InspectScorer:
    """See the module's text. `workers.scoring` gives it the protocol's errors."""

    def __init__(self, loaded: Loaded) -> None:
        """`loaded`: the task, as this process has it."""
        self._loaded = loaded
        self._there = Background("evalbus-inspect-scorer")

    def close(self) -> None:
        """End the thread in which the task's scorers run."""
        self._there.close()

    async def score(self, case: Case, answer: str) -> tuple[bool, str, bytes]:
        """Whether it passes, the deciding value as text, and what is kept of the verdict.

        Raises UnscoredError, ViolationError for an answer that is no sample of this case, and what the scorers raise.
        """
        opened = SealedSample.loads(answer)
        sample = self._loaded.samples[case.id]
        if str(opened.sample.id) != str(sample.id):
            raise UnscoredError(f"what was sealed is sample {opened.sample.id!r}, not {sample.id!r}")
        verdict = await self._there.run(self._scored(opened))
        passed, value = passes(verdict.scores, self._loaded.table)
        return passed, value, verdict.dumps()

    async def _scored(self, opened: SealedSample) -> Verdict:
        quiet()
        before, task = len(opened.sample.events), self._loaded.task
        log = EvalLog(
            eval=EvalSpec(
                created=datetime.now(UTC).isoformat(),
                task=self._loaded.table.task,
                dataset=EvalDataset(),
                model=str(task.model or self._loaded.model or "none/none"),
                config=EvalConfig(),
            ),
            samples=[opened.sample],
        )
        done = await score_async(
            log,
            [_marked(opened.choices), *map(_apart, task.scorer or [])],
            metrics=[_counted()],  # of one sample, a metric means nothing, and may fail
            epochs_reducer=[],
            model=task.model or self._loaded.model or "none/none",
            model_roles=task.model_roles,
            action="append",
            copy=False,
        )
        [sample] = done.samples or []
        return Verdict(sample.scores or {}, _without_ours(sample.events[before:]))


def passes(scores: Mapping[str, Score], table: InspectTable) -> tuple[bool, str]:
    """Whether a sample with these scores passes, and the value that says so, as text. Raises UnscoredError."""
    name = table.scorer or next(iter(scores), None)
    if name is None:
        raise UnscoredError("the task has no scorer, and its solver gave no score")
    if name not in scores:
        raise UnscoredError(f"no score of {name!r} (there are {', '.join(scores) or 'none'})")
    value: Any = scores[name].value
    if table.key is not None:
        if not isinstance(value, Mapping) or table.key not in value:
            raise UnscoredError(f"the score of {name!r} has no value {table.key!r}")
        value = value[table.key]
    parts = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else [value]
    if not parts or any(part is None or (isinstance(part, float) and math.isnan(part)) for part in parts):
        raise UnscoredError(f"the scorer {name!r} left it unscored")
    as_float = value_to_float()
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"
    return all(as_float(part) >= table.threshold for part in parts), shown


def _apart(inner: Scorer) -> Scorer:
    """The scorer, with marks of its own: Inspect writes the metrics that it is given into the scorer itself."""

    async def call(state: TaskState, target: Target) -> Score | None:
        return await inner(state, target)

    vars(call).update(vars(inner))  # by these Inspect knows it, its name and its arguments
    return call


def _without_ours(events: Sequence[Event]) -> list[Event]:
    """Without the span of what only restores: it is no scorer of the task's."""
    spans = {event.id for event in events if isinstance(event, SpanBeginEvent) and event.name == _OURS}
    return [event for event in events if not (isinstance(event, SpanBeginEvent | SpanEndEvent) and event.id in spans)]


@metric
def _counted() -> Metric:
    def count(scores: list[SampleScore]) -> int:
        return len(scores)

    return count


@scorer(metrics=[], name=_OURS)
def _marked(choices: list[Mark]) -> Scorer:
    """Scores nothing: restores what was marked, for those after it."""

    async def restore(state: TaskState, target: Target) -> Score | None:
        for choice, (value, correct, position) in zip(state.choices, choices, strict=True):
            choice.value, choice.correct, choice.original_position = value, correct, position
        return None

    return restore
