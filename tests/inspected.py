"""Inspect tasks for tests: a stage that runs one in this process, and what Inspect makes of it alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from inspect_ai import eval_async
from inspect_ai.log import EvalLog, read_eval_log

from tests.stage import BATCH, Stage
from workers.batch_spec import spec_of
from workers.inspecting.hosting import host
from workers.inspecting.log import LogExport, export_log
from workers.inspecting.quiet import IN_MEMORY, quiet
from workers.inspecting.target import plain
from workers.suite import Suite, load_suite

__all__ = ["EXAMPLES", "InspectStage", "flat", "reduced", "undisturbed"]

EXAMPLES = Path(__file__).parent.parent / "examples" / "inspect" / "tasks.py"


class InspectStage(Stage):
    """One batch of a task, and the roles that work on it."""

    async def of(self, named: str | Path) -> Suite:
        """Load the task that `FILE.py@task` names, or the suite, and declare its batch."""
        self.suite = load_suite(plain(f"inspect:{named}") if "@" in str(named) else Path(named))
        decision = await self.bus.create(spec_of(self.suite, BATCH))
        assert decision.applied, decision
        return self.suite

    async def run_to_the_end(self) -> None:
        """Planner, worker and scorer, until the batch has closed."""
        self.planner()
        self.worker()
        self.scorer()
        await self.closed()
        await host().aclose()  # Inspect runs one eval in a process, and a log's header is made by another

    async def exported(self, file: Path) -> tuple[LogExport, EvalLog]:
        """The batch as a log, read again from its file."""
        made = await export_log(self.bus, BATCH, file, lambda _path: self.suite)  # type: ignore[arg-type]
        # In a thread without a loop: within one, Inspect would patch asyncio for the whole process.
        return made, await asyncio.to_thread(read_eval_log, str(file))

    async def aclose(self) -> None:
        """End everything, the eval too."""
        await Stage.aclose(self)
        await host().aclose()
        assert asyncio.run.__module__ == "asyncio.runners", "Inspect has patched asyncio for all tests of this process"


async def undisturbed(suite: Suite) -> EvalLog:
    """What Inspect makes of a suite's task by itself, in one process that nobody disturbs."""
    loaded = load_suite(suite.source).place.task
    assert loaded is not None
    quiet()
    [log] = await eval_async(
        loaded.task, model=loaded.model, log_dir=IN_MEMORY, log_realtime=False, acp_server=False, ctl_server=False,
        epochs=loaded.table.epochs, limit=loaded.table.limit, fail_on_error=False, log_level="critical",
    )  # fmt: skip
    return log


def flat(log: EvalLog) -> list[Any]:
    """Each score of a log's results with its metrics."""
    assert log.results is not None
    return [
        (score.name, score.scorer, score.reducer, {name: metric.value for name, metric in score.metrics.items()})
        for score in log.results.scores
    ]


def reduced(log: EvalLog) -> list[Any]:
    """What the reducers made of the epochs, sample by sample."""
    return [
        (one.scorer, one.reducer, [(str(sample.sample_id), sample.value) for sample in one.samples])
        for one in log.reductions or []
    ]
