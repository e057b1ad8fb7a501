"""The four misfortunes, each on a queue of its own, and what was seen.

    killed      SIGKILL to the worker in mid-job: how long until its job is run again
    stopped     SIGSTOP to it until its job was run again and has a result; SIGCONT: what its own late result does
    twice       one id enqueued twice, both before a worker is there, the second while the first runs, and after it
    no server   SIGKILL to the server under load, and its start one second later: what is lost, repeated, never done

Each is one observation, not a statistic. What is counted is exact; a time depends on timers that the job happened to
meet, so it is right to a few seconds.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from workers.benching.crash.adapter import SECONDS
from workers.benching.crash.playing import Play, PlayError

__all__ = ["CAP", "Killed", "NoServer", "Stopped", "Twice", "killed", "no_server", "stopped", "twice"]

CAP = 60.0
"""Seconds after which a job counts as not run again. Half of it without a job's end, and a load won't be done."""
_JOBS = 40
_BEFORE = 2.0 * SECONDS - 1.0  # seconds of load until the server dies: the second jobs are under way
_AWAY = 1.0
_QUIET = 2.0 * SECONDS + 2.0  # seconds without an effect after which none is to come: longer than a job, and its poll
_LATE = 3.0  # seconds for a late result to arrive once its job has returned


@dataclass(frozen=True, slots=True)
class Killed:
    """None: not within `CAP`."""

    again_after: float | None
    recorded: str = ""
    """What the queue recorded of a job that was not run again, in its own words."""

    def __str__(self) -> str:
        """For a table."""
        if self.again_after is not None:
            return f"{self.again_after:.1f} s"
        return f"not in {CAP:.0f} s" + (f", recorded: {self.recorded}" if self.recorded else "")


@dataclass(frozen=True, slots=True)
class Stopped:
    """What the late result did."""

    outcome: str
    """`not run again`, `never returned`, `no result`, `overwrites`, `kept`."""
    recorded: str = ""
    """What the queue recorded about it, in its own words."""

    def __str__(self) -> str:
        """For a table."""
        words = {
            "not run again": f"its job is not run again in {CAP:.0f} s",
            "never returned": "its own job ends without a result",
            "no result": "neither result is stored",
            "overwrites": "its late result overwrites",
            "kept": "the first result is kept",
        }[self.outcome]
        return f"{words}, recorded: {self.recorded}" if self.recorded else words


@dataclass(frozen=True, slots=True)
class Twice:
    """Effects; one enqueueing is one effect where nothing goes wrong."""

    queued: int
    running: int
    after: int

    def __str__(self) -> str:
        """For a table."""
        return f"{self.queued} / {self.running} / {self.after}"


@dataclass(frozen=True, slots=True)
class NoServer:
    """Of `jobs` that were enqueued."""

    jobs: int
    undone: int
    """Without a single whole execution by the end of the observation."""
    extra: int
    """Effects beyond one a job."""
    workers_ended: int
    seconds: float
    """From the first effect to the last end."""
    recorded: str = ""
    """What the queue recorded of refusals and of giving up, in its own words."""

    def __str__(self) -> str:
        """For a table."""
        told = [
            f"{self.undone} of {self.jobs} undone" if self.undone else "nothing lost",
            f"{self.extra} extra" if self.extra else "",
            f"{self.workers_ended} of 2 workers exit" if self.workers_ended else "",
            f"recorded: {self.recorded}" if self.recorded else "",
        ]
        return ", ".join(one for one in told if one)


async def killed(play: Play) -> Killed:
    """Raises PlayError."""
    await play.hire()
    await play.put("k")
    play.worker(await _in_mid_job(play, "k")).signal(signal.SIGKILL)
    died = time.time()
    if not await play.until(lambda: len(play.told(jobs=["k"])) > 1, CAP):
        return Killed(None, await play.recorded("k"))
    return Killed(round(play.told(jobs=["k"])[1].at - died, 1))


async def stopped(play: Play) -> Stopped:
    """Raises PlayError."""
    await play.hire()
    await play.put("z")
    sleeper = await _in_mid_job(play, "z")
    play.worker(sleeper).signal(signal.SIGSTOP)
    again = await play.until(lambda: any(one.who != sleeper for one in play.told("end", ["z"])), CAP)
    first = await play.until_result("z", lambda found: found is not None, _LATE)
    play.worker(sleeper).signal(signal.SIGCONT)
    returned = await play.until(lambda: any(one.who == sleeper for one in play.told("end", ["z"])), CAP / 4)
    last = await play.until_result("z", lambda now: now == sleeper, _LATE)
    if not again:
        outcome = "not run again"
    elif not returned:
        outcome = "never returned"
    elif first is None and last is None:
        outcome = "no result"
    else:
        outcome = "overwrites" if last == sleeper else "kept"
    return Stopped(outcome, await play.recorded("z"))


async def twice(play: Play) -> Twice:
    """Raises PlayError."""
    await play.put("q")
    await play.put("q")
    await play.hire()
    await _done(play, "q")
    await play.put("r")
    await _in_mid_job(play, "r")
    await play.put("r")
    await _done(play, "r")
    await play.put("a")
    await _done(play, "a")
    await play.put("a")
    await _quiet(play)
    effects = Counter(one.job for one in play.told())
    return Twice(effects["q"], effects["r"], effects["a"])


async def no_server(play: Play) -> NoServer:
    """Raises PlayError."""
    await play.hire()
    jobs = [f"s{number}" for number in range(_JOBS)]
    await play.put(*jobs)
    await _in_mid_job(play, *jobs)
    await asyncio.sleep(_BEFORE)
    await play.kill_server()
    await asyncio.sleep(_AWAY)
    await play.serve()
    await _done_or_stuck(play)
    await _quiet(play)
    effects, ends = play.told(), play.told("end")
    return NoServer(
        jobs=_JOBS,
        undone=_JOBS - len(_jobs_done(play)),
        extra=len(effects) - len({one.job for one in effects}),
        workers_ended=sum(not one.alive for one in play.workers),
        seconds=round(max((one.at for one in ends), default=effects[0].at) - effects[0].at, 1),
        recorded=await play.recorded(jobs[0]),
    )


def _jobs_done(play: Play) -> set[str]:
    return {one.job for one in play.told("end")}


async def _done_or_stuck(play: Play) -> None:
    """Go on for as long as it gets on: some queues drive one job at a time."""
    before = -1
    while before < (done := len(_jobs_done(play))) < _JOBS:
        before = done

        def more(done: int = done) -> bool:
            return len(_jobs_done(play)) > done

        await play.until(more, CAP / 2)


async def _in_mid_job(play: Play, *jobs: str) -> str:
    """Wait for a job's effect; the worker that made it."""
    await _happened(play, lambda: play.told(jobs=jobs), "no worker takes a job")
    return play.told(jobs=jobs)[0].who


async def _done(play: Play, job: str) -> None:
    await _happened(play, lambda: play.told("end", [job]), f"job {job} is not done")
    await _quiet(play)


async def _happened(play: Play, what: Callable[[], object], else_told: str) -> None:
    if not await play.until(what, CAP):
        raise PlayError(f"{else_told} within {CAP:.0f} s")


async def _quiet(play: Play) -> None:
    """Until no effect has been made for a while."""
    seen = -1
    while seen != (now := len(play.told())):
        seen = now
        await asyncio.sleep(_QUIET)
