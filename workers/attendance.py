"""Who may ask in a run's name: the tasks of its solver, from the solver's start to its answer.

A solver is more than one task. It may spawn some and return without them, be cancelled while others of it go on, or
swallow its cancellation; and what they asked then would be announced, and paid for, in a run that is being sealed, in
one that has ended, or in the middle of what the solver does that was started over. So each attempt has its own tasks:
when it is over, those that wait are cancelled, and those that come later never get a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NoReturn
from weakref import WeakSet

import structlog

from bus.errors import InputError

__all__ = ["Attendance"]

log = structlog.get_logger("evalbus.worker")

_GRACE = 5.0  # seconds for tasks that are cancelled; a tool of the suite's may hold on

_sent_away: WeakSet[asyncio.Task[object]] = WeakSet()
"""Tasks that were cancelled for coming too late, or for holding on to a turn, of all runs."""

_attempt: ContextVar[object] = ContextVar("evalbus_attempt", default=None)


class Attendance:
    """See the module's text."""

    def __init__(self) -> None:
        """Made on the worker's event loop; nobody has begun, and whoever comes may ask."""
        self._loop = asyncio.get_running_loop()
        self._attempt: object = None
        self._over = False
        self._asking: set[asyncio.Task[object]] = set()
        self._left = asyncio.Event()

    def begin(self) -> None:
        """The solver starts, in the task that calls this: it, and the tasks and threads that it starts, may ask."""
        self._attempt, self._over = object(), False
        _attempt.set(self._attempt)

    def end(self) -> None:
        """Nobody gets a turn any more; who has one keeps it."""
        self._over = True

    @property
    def is_asked(self) -> bool:
        """Whether somebody has a turn, or waits for one."""
        return bool(self._asking)

    async def dismiss(self) -> None:
        """`end`, and cancel who has a turn or waits for one. Returns when they have let go, or after a while."""
        self.end()
        asking = set(self._asking)
        for task in asking:
            _sent_away.add(task)
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE):
                while self._asking & asking:
                    self._left.clear()
                    await self._left.wait()
        if self._asking & asking:
            log.warning("solver.task_left_behind", why="it does not let go of its turn when it is cancelled")

    @contextmanager
    def asking(self) -> Iterator[None]:
        """While a task has a turn, or waits for one."""
        task = asyncio.current_task()
        if task is None or task in self._asking:
            yield
            return
        self._asking.add(task)
        try:
            yield
        finally:
            self._asking.discard(task)
            self._left.set()

    async def check(self) -> None:
        """Return if the task that calls this may ask. Raises InputError on another event loop than the worker's."""
        if asyncio.get_running_loop() is not self._loop:
            raise InputError(
                "what a run offers is used on the worker's own event loop, and this is another",
                remedy="write the solver as `async def`, without `asyncio.run`",
            )
        if not self.is_present():
            await self._send_away()

    def is_present(self) -> bool:
        """Whether the task that calls this is one of an attempt that goes on."""
        # Who knows of no attempt was started by a thread of the solver's.
        return not self._over and _attempt.get() in (None, self._attempt)

    async def _send_away(self) -> NoReturn:
        """Cancel who came too late; one that swallows that, and comes again, waits for ever and does not spin."""
        task = asyncio.current_task()
        if task is not None and task not in _sent_away:
            _sent_away.add(task)
            task.cancel()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")
