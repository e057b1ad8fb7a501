"""A stage for suites that ask a model: a batch, its processes, and a lab as the endpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bus.port import Counters
from bus.types import RunId
from tests.fragile import Moment
from tests.stage import BATCH, A, B, InMemory, OnServer, Stage
from workers.lab import Lab
from workers.lab.mischief import Api

__all__ = [
    "ASKS_ONCE",
    "BATCH",
    "SHORT",
    "A",
    "B",
    "InMemory",
    "ModelStage",
    "Moment",
    "OnServer",
    "asked",
    "cases",
    "settled",
    "suite_of",
]

ASKS_ONCE = """\
async def solve(case, run):
    return (await run.model.complete(f"LAB-ANSWER: {case.input}")).text
"""

SHORT = "500ms"
"""A lease for tests in which a holder dies; in the others nobody is to be suspected on a busy machine."""


def suite_of(lab: Lab, top: str = "", model: str = "", rest: str = "", lease: str = "5s") -> str:
    """A suite that asks the lab, its solver in `agent.py`, with more lines at the top, in `[model]`, at the end."""
    return (
        f'cases = "cases.jsonl"\nlease = "{lease}"\nmax_deliveries = 3\n{top}\n'
        f'[model]\nbase_url = "{lab.url}/v1"\nname = "lab-1"\n'
        f'billing_url = "{lab.url}/billing/{{request_id}}"\n{model}\n'
        f'[solver]\npython = "agent.py:solve"\n{rest}\n[scorer]\nkind = "exact"\n'
    )


@dataclass(slots=True)
class ModelStage(Stage):
    """See the module's text."""

    async def events(self, run: RunId) -> list[dict[str, Any]]:
        """A run's transcript."""
        return [json.loads(event.payload) for event in await self.bus.transcript(BATCH, run)]

    async def kinds_of(self, run: RunId) -> list[str]:
        """What its events are."""
        return [event["kind"] for event in await self.events(run)]

    async def run_to_the_end(self, workers: int = 1) -> Counters:
        """Planner, scorer and workers, until the batch has closed."""
        self.planner()
        for _ in range(workers):
            self.worker()
        self.scorer()
        return await self.closed()


def asked(lab: Lab) -> int:
    """Requests that the model has had."""
    return lab.counts.requests[Api.MODEL].requests


def settled(counters: Counters, lab: Lab) -> None:
    """The books are in order: nothing is reserved, and what was spent is what the endpoint has billed."""
    assert counters.reserved == 0
    assert counters.spent == lab.counts.model.billed


def cases(ids: Sequence[str]) -> str:
    """A case file in which each case's answer is its name."""
    return "".join(json.dumps({"id": name, "input": name, "target": name}) + "\n" for name in ids)
