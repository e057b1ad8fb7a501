"""The same agent, its harness a tool that any worker may run: only the search itself stays where the run is.

A harness needs no more of the workspace than its files, so they travel with each call, beside some of the candidates.
Which of those pass does not depend on how many of them are judged together, and so neither does the patch.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agent import repair

from workers.tools import call

if TYPE_CHECKING:
    from workers.cases import Case
    from workers.run import Run
    from workers.tools import Call

CANDIDATES = 60
"""In one call."""

TOGETHER = 2
"""Calls at once."""


async def solve(case: Case, run: Run) -> str:
    """Repair the module that the case names, in place, and say what was done."""
    return await repair(case, run, elsewhere)


async def elsewhere(run: Run, request: dict[str, Any]) -> dict:
    """Ask the harness, wherever there is a worker for it."""
    files = {file.name: file.read_text(encoding="utf-8") for file in sorted(run.workspace.path.glob("*.py"))}
    if "candidates" not in request:
        [said] = await asked(run, [call("harness", files=files, request=request)])
        return said
    plausible: list[int] = []
    tried, wanted = 0, request["wanted"]
    while tried < len(request["candidates"]) and len(plausible) < wanted:
        begins = range(tried, min(tried + TOGETHER * CANDIDATES, len(request["candidates"])), CANDIDATES)
        pieces = [request | {"candidates": request["candidates"][at : at + CANDIDATES]} for at in begins]
        said = await asked(run, [call("harness", files=files, request=piece) for piece in pieces])
        for at, piece, one in zip(begins, pieces, said, strict=True):
            plausible += [at + index for index in one["plausible"]]
            tried += len(piece["candidates"])
    return {"plausible": plausible[:wanted], "tried": tried}


async def asked(run: Run, calls: list[Call]) -> list[dict]:
    found = await run.tools.gather(*calls)
    for one in found:
        if not one.ok:
            raise RuntimeError(f"the test harness failed: {one.text}")
    return [json.loads(one.text) for one in found]
