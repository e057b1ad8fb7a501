"""Late duplicates: the outcome of a run's first booking is presented once more when the fan-out has been joined.

So does an executor whose answer got lost, or which was stopped for a while. The steps of this process's own bus are
wrapped for it; nothing of evalbus knows. Where a run is named after it, its holder also dies, once, with the whole
fan-out done and not joined.
"""

import asyncio
import contextlib
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path

from bus.port import Outcome
from bus.redis_bus import RedisBus

NAMES = [f"{'dies' if number % 4 == 3 else 'late'}.{number}" for number in range(int(os.environ["REHEARSAL_RUNS"]))]

held = {}


def folder(name):
    place = Path(os.environ["REHEARSAL_PLACE"]) / name
    place.mkdir(exist_ok=True)
    return place


def install():
    """Wrap the steps of a fan-out, in this process."""
    put, complete, join = RedisBus.put_tools, RedisBus.tool_complete, RedisBus.join

    async def put_tools(self, ref, fan_out):
        held[ref.run] = self, ref.batch
        return await put(self, ref, fan_out)

    async def tool_complete(self, batch, run, intent, gen, executor, outcome):
        if intent.endswith(".0"):
            said = {"intent": intent, "gen": gen, "executor": executor, "outcome": asdict(outcome)}
            (folder("said") / run).write_text(json.dumps(said))
        return await complete(self, batch, run, intent, gen, executor, outcome)

    async def join_tools(self, ref, fan_out, payload, receipts=()):
        if ref.run.startswith("dies."):
            await nothing_under_way(self, ref.batch)
            with contextlib.suppress(FileExistsError):
                (folder("deaths") / ref.run).open("x").close()
                os.kill(os.getpid(), signal.SIGKILL)
        return await join(self, ref, fan_out, payload, receipts)

    RedisBus.put_tools, RedisBus.tool_complete, RedisBus.join = put_tools, tool_complete, join_tools


async def nothing_under_way(bus, batch):
    """Wait until all calls of all runs have ended: a death in the middle of another one's would leave that in doubt."""
    for name in NAMES:
        while not (calls := await bus.effects(batch, f"{name}#1")) or not all(call.state.final for call in calls):
            await asyncio.sleep(0.05)


async def say_again(run):
    """Present the outcome a second time, and write down what is said to that."""
    if run not in held:  # it was killed after it had said so: the transcript answered the fan-out
        return
    bus, batch = held[run]
    said = json.loads((folder("said") / run).read_text())
    outcome = Outcome(**said["outcome"])
    decision = await bus.tool_complete(batch, run, said["intent"], said["gen"], said["executor"], outcome)
    (folder("late") / run).write_text(decision.verb.value)
