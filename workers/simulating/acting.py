"""The candidate, the tools and the scorer of a simulated suite: they do what the case says, and mean nothing by it.

What a case's solver does is drawn from the run's own seed, so each attempt at a run does the same; but for cases that
are `fickle`, whose second attempt goes another way than the first had begun. The answer never depends on what a model
or a tool said: so a run that is scored at all is scored alike, whatever was killed on the way.
"""

from __future__ import annotations

import asyncio
import errno
import random
from contextvars import ContextVar
from typing import Final

from workers.cases import Case
from workers.run import Run
from workers.scoring import Score, Sealed
from workers.simulating.lab import Lab
from workers.simulating.process import PROCESS
from workers.tools.values import ToolContext, call

__all__ = ["BINS", "LAB", "act", "look", "make", "score", "solve", "undo"]

LAB: ContextVar[Lab] = ContextVar("evalbus_simulated_lab")
"""The endpoint of the schedule that is being played."""

BINS: ContextVar[tuple[str, ...]] = ContextVar("evalbus_simulated_bins", default=("pass", "fail"))

_PAUSES: Final = (0.0, 0.02, 0.1, 0.4)
"""Lease times that a solver thinks for."""


async def solve(case: Case, run: Run) -> str:
    """Do two to four of the things that the case's metadata name, then answer."""
    told = case.metadata
    does = str(told["does"]).split()
    lease = float(str(told["lease"]))
    drawn = random.Random(run.seed)  # noqa: S311 - a script, no secret
    turn = f" in attempt {run.gen}" if told.get("fickle") else ""
    PROCESS.get().begins("attempt", run.id)
    for step in range(drawn.randint(2, 4)):
        await asyncio.sleep(drawn.choice(_PAUSES) * lease)
        if why := PROCESS.get().unable(run.id):
            raise OSError(errno.ENOSPC, why)
        await _do(drawn.choice(does), step, turn if step else "", run, drawn, told)
    if told.get("raises"):
        raise ValueError("it cannot be solved")
    return str(told["answer"])


async def _do(what: str, step: int, turn: str, run: Run, drawn: random.Random, told: object) -> None:
    assert isinstance(told, dict)
    match what:
        case "note":
            await run.note(f"step {step}{turn}")
        case "model":
            await run.model.complete(f"step {step} of {run.id}{turn}", max_tokens=40)
        case "write":
            await run.workspace.write(f"step-{step}.txt", f"step {step} of {run.id}{turn}")
        case "tools":
            names = str(told["tools"]).split()
            calls = [call(drawn.choice(names), n=number, turn=turn) for number in range(drawn.randint(1, 3))]
            await run.tools.gather(*calls)


async def score(case: Case, sealed: Sealed) -> Score:
    """The bin that the case's target names."""
    await asyncio.sleep(0.05 * float(str(case.metadata["lease"])))
    bins, wanted = BINS.get(), str(case.metadata["answer"])
    passed = sealed.answer == wanted == str(case.target)
    return Score(bins[0] if passed else bins[1], "1" if passed else "0")


async def act(context: ToolContext, n: int, turn: str = "") -> str:
    """A tool with an effect outside."""
    return await LAB.get().effect(PROCESS.get(), context.key, f"done {n}{turn}")


async def undo(context: ToolContext, n: int, turn: str = "") -> str:
    """Take such a call back."""
    return await LAB.get().undo(PROCESS.get(), context.undoes or "", f"undone {n}{turn}")


async def look(context: ToolContext, n: int, turn: str = "") -> str:
    """A tool that only reads."""
    return await LAB.get().look(PROCESS.get(), f"seen {n}{turn}")


async def make(context: ToolContext, n: int, turn: str = "") -> str:
    """A tool that changes the run's workspace."""
    assert context.workspace is not None, "it is called where the run is"
    (context.workspace.path / f"made-{n}.txt").write_text(f"made {n}{turn}", encoding="utf-8")
    return f"made {n}"
