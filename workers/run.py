"""One run as its solver sees it: who it is, where it works, and what it may tell.

All that a solver does to the world through a `Run` is fenced: once the run's lease is gone, it is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bus.types import Gen, RunId
from workers.cases import Case
from workers.modelling.model import Missing, Model
from workers.workspace import Workspace

if TYPE_CHECKING:
    from workers.tools.plane import Tools

__all__ = ["Note", "Run", "seed_of"]

Note: TypeAlias = Callable[[str], Awaitable[None]]


def seed_of(run: RunId) -> int:
    """A number in [0, 2^32) that belongs to the run: the same on every machine and in every attempt."""
    return int.from_bytes(hashlib.sha256(run.encode()).digest()[:4])


async def _nowhere(_text: str) -> None:
    raise RuntimeError("this run has no transcript to note anything in")


_NO_MODEL: Any = Missing(
    "run.model", 'the suite declares no model (add a table [model] with api = "chat" and name = "…")'
)
_NO_TOOLS: Any = Missing("run.tools", "the suite declares no tools (add a table [tools.<name>])")


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt at one trial of one case: the second argument of a solver, `async def solve(case, run) -> str`.

        await run.note("looked it up")                                  into the transcript
        reply = await run.model.complete([{"role": "user", …}])         the suite's [model]: reply.text, reply.usage
        text = await run.tools.call("search", query=case.input)         the suite's [tools.search]
        await run.workspace.write("main.py", code)                      the run's directory, also read_text
        done = await run.workspace.run(["{python}", "main.py"])         a command there: done.stdout, done.exit_code

    `id` is `CASE#TRIAL`; `trial` counts from 1. `gen` is the attempt's fencing token, and grows with each attempt.
    `seed` is the same in each attempt, so that a run that is repeated after a crash can take the same path.
    """

    id: RunId
    case: Case
    trial: int
    gen: Gen
    seed: int
    workspace: Workspace
    note: Note = _nowhere
    """`await run.note(text)` adds an event to the run's transcript, where it stays whatever becomes of the run."""
    model: Model = _NO_MODEL
    """`await run.model.complete(messages)` asks the suite's model; see `workers.modelling.model`. A client of your own
    asks it at `run.model.base_url`."""
    tools: Tools = _NO_TOOLS
    """The suite's tools; see `workers.tools`."""
