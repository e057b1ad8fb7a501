"""A watch over the event loop, from a thread beside it: a process that does not get on ends, so that its runs can.

A solver that never lets go of the loop (`while True: pass`, a blocking read) stops the beats of every run in its
process. Their leases run out, but when all processes of a group are caught so, nobody is left to take the runs, and the
batch never closes. No cancellation reaches such code; only the end of the process does. It is then a death like any
other: the runs are taken by the next, and the one that did it ends as poison.

    the loop is away, and the code has    this thread says where in the code, and ends the process: exit `BLOCKED`
      the interpreter to share
    the loop is away inside one call      neither can run; `faulthandler`, which needs no interpreter, writes where,
      that keeps the interpreter          and ends the process a little later: exit 1

Before that, when the loop has been away for a lease, it notes in the log which run holds it, and where, and tells the
server: the run is taken by others then, and ends as poison perhaps before this process does
(`workers.processes.held_loops`).

This thread counts silence in looks, not on the clock: a process that was stopped, or a machine that slept, wakes up
with the clock far on, and its loop is not to blame. On a busy machine a look takes longer, and so the whole does.
(`faulthandler` can tell neither; so it is given twice the time, and ten seconds more than once at least.)
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TypeAlias

import structlog

from bus.held_loops import HeldLoop
from bus.types import BatchId, RunId
from workers.processes.role_options import BLOCKED
from workers.redaction import redacted
from workers.usercode import place_in_suite

__all__ = ["OF_RUN", "Tell", "watching"]

OF_RUN = "run of "
"""What begins the name of a task that drives a run's solver; its batch and the run follow, a blank between them."""

log = structlog.get_logger("evalbus.watchdog")

_ASK_EVERY = 0.5  # seconds between two questions to the loop
_LOOK = 0.1  # seconds between two looks for its answer
_DEAF = 2  # times the patience: what even this thread cannot see is ended by then
_NO_SOONER = 10.0  # seconds behind the patience: else it would be first where this thread was only slow, and say less
_TELLING = 5.0  # seconds at most that a process which ends still has to tell others where it was held
_UNKNOWN = 60.0  # seconds of patience while nothing is served yet


Tell: TypeAlias = Callable[[BatchId, RunId, HeldLoop], threading.Thread | None]
"""Tells others than the log, in a thread that it starts. It does not keep the one that calls it."""


@contextlib.contextmanager
def watching(
    patience: Callable[[], float],
    lease: Callable[[], float] = lambda: 0.0,
    tell: Tell | None = None,
    consumer: str = "",
) -> Iterator[None]:
    """Watch the running loop. `patience()`, asked in another thread: how many seconds it may be away now; 0: any.

    `lease()`, likewise: after how many seconds others take what is held, 0: never. Then it is noted who holds the loop,
    and `tell` is called, once each time that it is held: the loop is that of `consumer`.
    """
    watchdog = _Watchdog(patience, lease, tell, consumer)
    context = contextvars.copy_context()  # what is bound to every line of this process's log
    threading.Thread(target=context.run, args=(watchdog.watch,), name="evalbus-watchdog", daemon=True).start()
    try:
        yield
    finally:
        watchdog.over.set()
        faulthandler.cancel_dump_traceback_later()


class _Watchdog:
    """See the module's text."""

    def __init__(
        self, patience: Callable[[], float], lease: Callable[[], float], tell: Tell | None, consumer: str
    ) -> None:
        self._patience, self._lease, self._tell, self._consumer = patience, lease, tell, consumer
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._telling: threading.Thread | None = None
        self.over = threading.Event()

    def watch(self) -> None:
        """In a thread of its own, until it is over."""
        while not self.over.wait(_ASK_EVERY):
            came_round = threading.Event()
            try:
                self._loop.call_soon_threadsafe(self._answer, came_round)
            except RuntimeError:  # the loop is closed
                return
            silent, noted = 0.0, False
            while not came_round.wait(_LOOK):
                silent += _LOOK
                if not noted and (lease := self._lease()) and silent >= lease:
                    noted = True
                    self._note(silent)
                patience = self._patience()
                if patience and silent >= patience and not self.over.is_set():
                    self._end(patience)

    def _answer(self, came_round: threading.Event) -> None:
        """In the loop: it has come round."""
        came_round.set()
        if not self.over.is_set():
            patience = self._patience() or _UNKNOWN
            faulthandler.dump_traceback_later(max(_DEAF * patience, patience + _NO_SOONER), exit=True)

    def _note(self, silent: float) -> None:
        task = asyncio.current_task(self._loop)
        name = task.get_name() if task is not None else ""
        batch, _, run = name.removeprefix(OF_RUN).partition(" ") if name.startswith(OF_RUN) else ("", "", "")
        seconds, where = round(silent, 1), redacted(self._where())
        log.warning("loop.held", batch=batch, run=run, seconds=seconds, where=where)
        if run and self._tell is not None:
            self._telling = self._tell(BatchId(batch), RunId(run), HeldLoop(self._consumer, seconds, where))

    def _where(self) -> str:
        """The suite's own line, where it is the suite's code that runs; else the innermost of all."""
        frame = self._frame()
        own = place_in_suite(reversed(list(traceback.walk_stack(frame)))) if frame is not None else ""
        return own or _innermost(frame)

    def _end(self, patience: float) -> None:
        log.error("loop.blocked", seconds=patience, where=_innermost(self._frame()))
        if self._telling is not None:
            self._telling.join(_TELLING)
        os._exit(BLOCKED)

    def _frame(self) -> FrameType | None:
        """Where the watched thread is."""
        return sys._current_frames().get(self._watched)


def _innermost(frame: FrameType | None) -> str:
    if frame is None:
        return "?"
    place = traceback.extract_stack(frame)[-1]
    return f"{place.filename}:{place.lineno} in {place.name}"
