"""One batch, to its end: undisturbed, or while faults strike.

Faults stop after a while, and from then on the batch has a bounded time to end: as long as the undisturbed one took,
twice, and the times that silence may cost, of which each is a declared one. How long the undisturbed one may take,
nobody knows; but no such silence may pass in it without a run that ends. A batch that does not end is stuck, which is a
violation like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import structlog

from bus.errors import EvalbusError, ServerError
from bus.port import BatchSpec
from bus.types import BatchId
from workers.chaos.deaths import Deaths
from workers.chaos.faults import Fault
from workers.chaos.plan import Strike
from workers.chaos.scene import Scene
from workers.chaos.stage import Stage
from workers.chaos.striking import strike_until
from workers.processes.strays import Strays

__all__ = ["Crew", "Ended", "Storm", "run_batch"]

log = structlog.get_logger("evalbus.chaos")

_LOOK_EVERY = 0.1  # seconds
_LEASES = 20  # of silence at most, behind all faults: a connection that is found dead, a grace, a lease, several times


class StuckError(EvalbusError):
    """A batch that does not get on, with nothing to stop it."""


@dataclass(frozen=True, slots=True)
class Crew:
    """How many processes a batch has, and who looks after what they leave."""

    workers: int
    scorers: int
    strays: Strays


@dataclass(frozen=True, slots=True)
class Storm:
    """What a batch goes through."""

    plan: Iterator[Strike]
    seconds: float
    """After which faults stop, if the batch has not ended."""
    undisturbed: float
    """Seconds that the same suite took without them."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A batch that has ended, or never will."""

    name: BatchId
    spec: BatchSpec
    seconds: float
    settled: float | None
    """Seconds from the last fault's end to the batch's; None: it had ended before, or was not disturbed."""
    stuck: str
    """Why it has not ended; empty when it has."""
    faults: Mapping[Fault, int]
    deaths: Deaths


def _silence(stage: Stage, spec: BatchSpec) -> float:
    """Seconds that may pass without anything: those of a solver, those of a request that nobody answers for, leases."""
    suite = stage.lodging.suite
    asks = suite.model is not None or suite.judge_binding is not None
    return suite.timeout + (spec.reclaim_ms * asks + _LEASES * spec.lease_ms) / 1000


async def run_batch(stage: Stage, name: BatchId, crew: Crew, storm: Storm | None = None) -> Ended:
    """Raises EvalbusError when it cannot be declared."""
    loop = asyncio.get_running_loop()
    spec = stage.spec(name)
    await stage.bus.create(spec)
    keys = (await stage.bus.of(name)).keys(name)
    deaths = Deaths(stage.ask, keys)
    scene = Scene(stage, keys, deaths, spec.lease_ms / 1000)
    began = loop.time()
    stage.start(name, crew.workers, crew.scorers)
    over, silence = asyncio.Event(), _silence(stage, spec)
    watching = asyncio.create_task(_resumed(stage, name, crew, silence if storm is None else None))
    watching.add_done_callback(lambda _: over.set())
    stuck, settled = "", None
    try:
        if storm is not None:
            await strike_until(over, scene, storm.plan, storm.seconds)
            calm = loop.time()
            if watching.done() and not watching.exception() and not (await stage.bus.counters(name)).status.ended:
                # A server that lost its last moments has lost the batch's end with them, and nobody is left to end it.
                log.info("batch.resumed", why="its end was lost")
                await stage.fleet.stop()
                stage.start(name, crew.workers, crew.scorers)
                watching = asyncio.create_task(_resumed(stage, name, crew, None))
        bound = None if storm is None else silence + 2 * storm.undisturbed
        await asyncio.wait({watching}, timeout=bound)
        if not watching.done():
            stuck = f"it has not ended {bound:.0f} s after the last fault"
        elif (error := watching.exception()) is not None:
            stuck = str(error)
        elif storm is not None:
            settled = loop.time() - calm
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await deaths.close()
        await stage.fleet.stop()
    return Ended(name, spec, loop.time() - began, settled, stuck, Counter(scene.faults), deaths)


async def _resumed(stage: Stage, name: BatchId, crew: Crew, silence: float | None) -> None:
    """Until the batch has ended. Raises EvalbusError when it cannot.

    A role that found no server for a minute ends, and so would `evalbus run`, which says how to resume. Here that is
    done; but for an undisturbed batch (`silence` is given), which has no reason to.
    """
    while True:
        try:
            return await _until_ended(stage, name, crew.strays, silence)
        except ServerError as error:
            if silence is not None:
                raise
            log.info("batch.resumed", why=str(error))
            await stage.fleet.stop()
            stage.start(name, crew.workers, crew.scorers)


async def _until_ended(stage: Stage, name: BatchId, strays: Strays, silence: float | None) -> None:
    """Raises EvalbusError when a process cannot go on, however often it is started; or when no run ends for so long."""
    loop = asyncio.get_running_loop()
    failed = asyncio.create_task(stage.fleet.failed())
    ended, since = -1, loop.time()
    try:
        while not failed.done():
            strays.reap(stage.pids)
            with contextlib.suppress(EvalbusError):  # the server is away for longer than anybody's patience
                counters = await stage.bus.counters(name)
                if counters.status.ended:
                    return
                if counters.scored + counters.holes != ended:
                    ended, since = counters.scored + counters.holes, loop.time()
            if silence is not None and loop.time() - since > silence:
                raise StuckError(f"no run has ended for {silence:.0f} s")
            await asyncio.wait({failed}, timeout=_LOOK_EVERY)
        failed.result()
    finally:
        failed.cancel()
        with contextlib.suppress(asyncio.CancelledError, EvalbusError):
            await failed
