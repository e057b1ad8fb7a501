"""When things happened to the runs of a batch, by the times of the history's entries: milliseconds of the server's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from bus.recorded import Part, Recorded

__all__ = ["RunTimes", "run_of", "run_times"]


@dataclass(slots=True)
class RunTimes:
    """Of one run, in milliseconds since 1970; None: it did not happen."""

    admitted: int | None = None
    leased: list[int] = field(default_factory=list)
    """Each lease that was granted, in order."""
    sealed: int | None = None
    scored: int | None = None


async def run_times(history: AsyncIterator[Recorded]) -> dict[str, RunTimes]:
    """By run, in the order of admission."""
    runs: dict[str, RunTimes] = {}
    async for entry in history:
        at = int(entry.id.partition("-")[0])
        for part in entry.parts:
            run = run_of(entry, part)
            if part.verb != "commit" or not run:
                continue
            times = runs.setdefault(run, RunTimes())
            match f"{part.fence}.{part.op}":
                case "judge.mint" if times.admitted is None:
                    times.admitted = at
                case "transcript.lease":
                    times.leased.append(at)
                case "transcript.seal":
                    times.sealed = at
                case "histogram.score":
                    times.scored = at
                case _:
                    pass
    return runs


def run_of(entry: Recorded, part: Part) -> str:
    """Whom a part is about: the command's run, or its own where a command is about many; empty for no run's."""
    return str(entry.envelope.get("run") or part.args.get("run") or "")
