"""The solver of a converted suite: the case's messages go to the suite's model, its answer is the run's."""

from __future__ import annotations

from collections.abc import Mapping

from workers.cases import Case
from workers.run import Run

__all__ = ["solve"]


async def solve(case: Case, run: Run) -> str:
    """The case's input is a list of messages, or the text of one from the user."""
    asked = case.input
    if isinstance(asked, list):
        messages = [dict(message) for message in asked if isinstance(message, Mapping)]
    else:
        messages = [{"role": "user", "content": case.prompt}]
    completion = await run.model.complete(messages)
    return completion.text
