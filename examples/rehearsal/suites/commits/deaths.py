"""kill -9, by the process itself, at a named point of a tool call's life: once for each run that is named after one.

Killed from outside a process dies somewhere near a point. To die exactly there, the steps of this process's own bus
are wrapped; nothing of evalbus knows of it.

    before-claim   the message has been delivered, the intent is nobody's
    after-claim    it is this executor's, and not yet licensed
    in-flight      the request has arrived, and the effect is not there: it comes when the client has left
    landed         the effect is there, and the answer is not
    answered       the answer has been read, and nobody was told
"""

import asyncio
import contextlib
import json
import os
import signal
import threading
import time
import urllib.request
from pathlib import Path

from bus.redis_bus import RedisBus
from workers.tools.executor import Executor

POINTS = ("before-claim", "after-claim", "in-flight", "landed", "answered")

# The lab does so the first time that it sees the key; the undo, which has the same arguments, is the second.
MISCHIEF = {"in-flight": "client-left@60s*1", "landed": "late@60s*1"}


EACH = int(os.environ.get("REHEARSAL_EACH", "1"))


def marks():
    place = Path(os.environ["REHEARSAL_PLACE"]) / "deaths"
    place.mkdir(exist_ok=True)
    return place


async def turn_of(bus, batch, run, intent):
    """Wait until those before it have died: who dies with another dies at a point of chance, and not at its own.

    Nobody dies before all have announced their calls: a run that came back would wait behind others that wait for it.
    A call that is made again after a death is to be left alone by the next one, and so are the undos, which come last.
    """
    order = [f"{point}.{number}#1" for number in range(1, EACH + 1) for point in POINTS]
    before = order if run not in order or intent.endswith("~undo") else order[: order.index(run)]
    for one in order:
        while not await bus.effects(batch, one):
            await asyncio.sleep(0.05)
    while not all((marks() / one).exists() for one in before):
        await asyncio.sleep(0.02)
    for one in before:
        while "-claim." in one and not all(effect.state.final for effect in await bus.effects(batch, one)):
            await asyncio.sleep(0.05)


def die(run):
    """Here, if this run has not died yet."""
    with contextlib.suppress(FileExistsError):
        (marks() / run).open("x").close()
        os.kill(os.getpid(), signal.SIGKILL)


def dies_at(point, run, intent):
    return run.startswith(f"{point}.") and not intent.endswith("~undo")


def arrived(intent):
    """What the lab has counted of an intent's key."""
    with urllib.request.urlopen(os.environ["REHEARSAL_LAB"] + "/counts", timeout=10) as answer:  # noqa: S310
        by_key = json.load(answer)["by_key"]
    return next((counts for key, counts in by_key.items() if key.endswith(f":{intent}")), None)


def watch(run, intent, condition):
    while True:
        counts = arrived(intent)
        if counts is not None and condition(counts):
            die(run)
            return
        time.sleep(0.01)


def install():
    """Wrap the steps of a tool call, in this process."""
    claim, sent, complete = RedisBus.tool_claim, RedisBus.tool_sent, RedisBus.tool_complete

    handle = Executor.handle

    async def handled(self, lease, served, lease_id):
        # Here it keeps nobody out: whoever waits for others while it has the process would wait for ever.
        entry = lease.entry
        intent = entry.fields.get("intent", "")
        await turn_of(self._bus, entry.batch, entry.run, intent)
        if dies_at("before-claim", entry.run, intent):
            die(entry.run)
        return await handle(self, lease, served, lease_id)

    async def tool_claim(self, entry, executor, consumer):
        intent = entry.fields.get("intent", "")
        decision = await claim(self, entry, executor, consumer)
        if decision.applied and dies_at("after-claim", entry.run, intent):
            die(entry.run)
        return decision

    async def tool_sent(self, batch, run, intent, gen, executor, slot):
        decision = await sent(self, batch, run, intent, gen, executor, slot)
        if decision.applied:
            for point, condition in (
                ("in-flight", lambda counts: counts["requests"] and not counts["commits"]),
                ("landed", lambda counts: counts["commits"]),
            ):
                if dies_at(point, run, intent):
                    threading.Thread(target=watch, args=(run, intent, condition), daemon=True).start()
        return decision

    async def tool_complete(self, batch, run, intent, gen, executor, outcome):
        if dies_at("answered", run, intent):
            die(run)
        return await complete(self, batch, run, intent, gen, executor, outcome)

    Executor.handle = handled
    RedisBus.tool_claim, RedisBus.tool_sent, RedisBus.tool_complete = tool_claim, tool_sent, tool_complete
