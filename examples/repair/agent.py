"""A program-repair agent without a model: it searches among small edits for one that the visible tests accept.

Nothing here depends on time, on the load of the machine, or on the order in which anything else runs: the same
program gets the same patch from any worker, which is what lets a batch be compared with another one.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mend.ranking import Spectrum, candidates, tidied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from workers.cases import Case
    from workers.run import Run

    Harness = Callable[[Run, dict[str, Any]], Awaitable[dict]]

HARNESS = Path(__file__).parent / "mend" / "harness.py"
TESTS = "test_visible"

BUDGET = 600
"""Candidates tried for one program, at most."""

PLAUSIBLE = 3
"""Candidates that pass the visible tests, of which the simplest is taken."""

STEPS = 50_000
"""Lines that a candidate may run in all visible tests together."""

TIMEOUT = 100.0
"""Seconds for one harness: a backstop, well beyond what a full budget takes."""


async def solve(case: Case, run: Run) -> str:
    """Repair the module that the case names, in place, and say what was done."""
    return await repair(case, run, harness)


async def repair(case: Case, run: Run, harness: Harness) -> str:
    """The same, with the harness wherever it is."""
    file = str(case.metadata["file"])
    source = run.workspace.read_text(file)
    common = {"module": Path(file).stem, "tests": TESTS, "steps": STEPS}

    found = await harness(run, {**common, "source": source})
    spectra = [Spectrum(each["id"], each["passed"], frozenset(each["lines"])) for each in found["tests"]]
    failing = [each.test for each in spectra if not each.passed]
    ranked = await asyncio.to_thread(candidates, source, spectra, BUDGET)
    await run.note(f"{len(failing)} of {len(spectra)} visible tests fail; {len(ranked)} edits to try")

    sources = [each.source for each in ranked]
    judged = await harness(run, {**common, "candidates": sources, "first": failing, "wanted": PLAUSIBLE})
    plausible = [ranked[index] for index in judged["plausible"]]
    await run.note(f"{judged['tried']} edits tried, {len(plausible)} pass the visible tests")
    if not plausible:
        return "no repair found"

    simplest = min(enumerate(plausible), key=lambda each: (each[1].edit.cost, each[1].edit.size, each[0]))[1]
    edit = tidied(source, simplest.edit)
    repaired = edit.applied_to(source)
    await run.workspace.write(file, repaired)
    return f"{file}:{edit.line}: {edit.operator}: {difference(source, repaired)}"


async def harness(run: Run, request: dict[str, Any]) -> dict:
    """Ask the harness, in a process within the workspace's limits."""
    # -P keeps the harness's own directory off the import path, where a program's module might be looked for.
    argv = [sys.executable, "-P", "-s", str(HARNESS)]
    finished = await run.workspace.run(argv, stdin=json.dumps(request), timeout=TIMEOUT)
    if not finished.ok:
        raise RuntimeError(f"the test harness failed: {finished.outcome}: {finished.last_line}")
    return json.loads(finished.stdout)


def difference(old: str, new: str) -> str:
    """The lines that differ, in one line: `- old text + new text`."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0)
    return " ".join(f"{line[0]} {line[1:].strip()}" for line in list(lines)[2:] if not line.startswith("@@"))
