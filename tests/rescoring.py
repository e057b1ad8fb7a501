"""Two batches: a first one, closed, and a second that scores its sealed runs anew, under another judge."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bus.port import NextRuns, RunRow
from bus.types import BatchId, ConsumerId, Decision, RunId
from tests.judge_stage import JudgeStage
from tests.model_stage import InMemory, OnServer
from tests.stage import BATCH, SUITE
from tests.suites import make_suite
from workers.batch_spec import spec_of
from workers.rescoring import check_source

NEW = BatchId("b.rescored-1")

INPUTS = {"a": "1", "b": "2", "c": "raise"}
CASES = "".join(json.dumps({"id": name, "input": text, "target": "1"}) + "\n" for name, text in INPUTS.items())
"""The first is right, the second wrong, and at the third the solver breaks."""

CODE = """\
async def solve(case, run):
    if case.input == "raise":
        raise ValueError("no such tool")
    if run.workspace is not None:
        await run.workspace.write("made.txt", case.input)
    return case.input
"""

LENIENT = SUITE.replace('python = "agent.py:solve"', 'command = ["false"]').replace(
    'kind = "exact"', 'kind = "regex"\npattern = "[12]"'
)
"""Another judge: any number will do. Its solver would fail."""


@dataclass(slots=True)
class Rescoring(JudgeStage):
    """The second batch, in the place of the first."""

    batch = NEW

    async def begin(self, toml: str = LENIENT, cases: str = CASES, **files: str) -> Decision:
        """Declare it over the first."""
        self.suite = make_suite(self.root / "judge", toml, cases_DOT_jsonl=cases, **files)
        source = await self.bus.info(BATCH)
        assert source is not None
        check_source(source, await self.bus.run_ids(BATCH), self.suite)
        return await self.bus.create(spec_of(self.suite, NEW, source.spec))

    async def rows(self, batch: BatchId = NEW) -> list[RunRow]:
        """Every run of a batch."""
        return await self.bus.rows(batch, await self.bus.run_ids(batch))

    async def adopt(self, *runs: RunId, cursor: int = 0, source: BatchId = BATCH) -> Decision:
        """One step of a planner's."""
        return await self.bus.adopt(NEW, source, NextRuns(cursor, runs, [], ConsumerId("p"), "candidate", "judge"))


async def over_a_first(place: InMemory | OnServer, directory: Path) -> Rescoring:
    """The second, not begun, over a first whose runs passed, failed, and broke the solver."""
    first = JudgeStage(place, directory)
    await first.declare(SUITE + "[workspace]\n", agent_DOT_py=CODE, cases_DOT_jsonl=CASES)
    await first.run_to_the_end()
    await first.aclose()
    return Rescoring(place, directory)


async def rescored(place: InMemory | OnServer, directory: Path) -> Rescoring:
    """Both, closed."""
    second = await over_a_first(place, directory)
    await second.begin()
    second.planner()
    second.scorer()
    await second.closed()
    return second
