"""Faults of processes: killed, stopped, told to end, late, repeating themselves, with a clock or a disk that fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import time
from dataclasses import replace

from bus.failpoints import Order
from workers.chaos.plan import LATE_ACK, Strike
from workers.chaos.scene import Scene
from workers.processes.role_options import Role

__all__ = [
    "clock",
    "disk_full",
    "kill",
    "kill_at_point",
    "kill_planner",
    "late_ack",
    "late_duplicate",
    "lose_answer",
    "stop",
    "term",
]

_AT_WORK = (Role.WORKER, Role.SCORER)
_POINT_COMES = 20.0  # seconds that an order waits for a process to come by
_LOOK_EVERY = 0.01


async def kill(scene: Scene, strike: Strike) -> None:
    """SIGKILL. The fleet starts another of the same name."""
    await _kill(scene, strike, *_AT_WORK)


async def kill_planner(scene: Scene, strike: Strike) -> None:
    """The same, to the planner."""
    await _kill(scene, strike, Role.PLANNER)


async def _kill(scene: Scene, strike: Strike, *roles: Role) -> None:
    living = scene.living(*roles)
    if living:
        name = strike.of(list(living))
        scene.struck(strike, name)
        await scene.deaths.told(name, lambda: scene.signal(living[name], signal.SIGKILL))


async def term(scene: Scene, strike: Strike) -> None:
    """SIGTERM, and no patience."""
    living = scene.living(*_AT_WORK, Role.PLANNER)
    if living:
        name = strike.of(list(living))
        scene.struck(strike, name)
        scene.signal(living[name], signal.SIGTERM)


async def stop(scene: Scene, strike: Strike) -> None:
    """SIGSTOP until the lease has run out, and somebody else has had the time to take the work."""
    living = scene.living(*_AT_WORK)
    if not living:
        return
    name = strike.of(list(living))
    scene.struck(strike, name)
    scene.signal(living[name], signal.SIGSTOP)
    try:
        await scene.pause(strike.between(1.3, 2.5) * scene.lease)
    finally:
        scene.signal(living[name], signal.SIGCONT)


async def kill_at_point(scene: Scene, strike: Strike) -> None:
    """It kills itself: see `plan.POINTS`."""
    living = scene.living(*strike.point.roles)
    if not living:
        return
    name = strike.of(list(living))
    if await _met(scene, strike.point.order, living[name]):
        scene.struck(strike, name)
        await scene.deaths.told(name, lambda: None)


async def late_ack(scene: Scene, strike: Strike) -> None:
    """Its acknowledgement is held up until the lease has run out."""
    await _order(scene, strike, replace(LATE_ACK, seconds=strike.between(1.3, 2.0) * scene.lease))


async def lose_answer(scene: Scene, strike: Strike) -> None:
    """An answer is lost on the way."""
    await _order(scene, strike, Order("after", (), "lose"), Role.PLANNER)


async def late_duplicate(scene: Scene, strike: Strike) -> None:
    """A script comes once more, when everything has gone on."""
    await _order(scene, strike, Order("after", (), "repeat", strike.between(0.05, 1.5) * scene.lease), Role.PLANNER)


async def clock(scene: Scene, strike: Strike) -> None:
    """A clock jumps by up to an hour."""
    forth = strike.length >= 0.5  # noqa: PLR2004 - half of them
    seconds = abs(strike.between(-3_600, 3_600))
    await _order(scene, strike, Order("before", (), "clock", seconds if forth else -seconds), Role.PLANNER)


async def disk_full(scene: Scene, strike: Strike) -> None:
    """A worker may not make any file larger than nothing: what it writes fails, and its log with it.

    By a limit of that process, where the whole machine would suffer from a disk that is really full.
    """
    living = scene.living(Role.WORKER)
    if not living:
        return
    name = strike.of(list(living))
    with contextlib.suppress(ProcessLookupError, PermissionError):
        before = resource.prlimit(living[name], resource.RLIMIT_FSIZE)
        resource.prlimit(living[name], resource.RLIMIT_FSIZE, (0, before[1]))
        scene.struck(strike, name)
        try:
            await scene.pause(strike.between(0.3, 1.0) * scene.lease)
        finally:
            resource.prlimit(living[name], resource.RLIMIT_FSIZE, before)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def _order(scene: Scene, strike: Strike, order: Order, *more: Role) -> None:
    living = scene.living(*_AT_WORK, *more)
    if not living:
        return
    name = strike.of(list(living))
    if await _met(scene, order, living[name]):
        scene.struck(strike, name)


async def _met(scene: Scene, order: Order, pid: int) -> bool:
    """Whether the process has come by the order's point. If it does not, the order is withdrawn."""
    file = order.place(scene.stage.orders, pid)
    until = time.monotonic() + _POINT_COMES
    try:
        while file.exists():
            if time.monotonic() > until or not _exists(pid):
                return False
            await asyncio.sleep(_LOOK_EVERY)
        return True
    finally:
        file.unlink(missing_ok=True)
