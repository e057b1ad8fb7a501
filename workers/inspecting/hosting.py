"""The one long-lived `eval_async` of a worker process, and how runs get into it.

Inspect runs one eval in a process, and refuses a second one beside it. Its tasks take a `SampleSource` for a dataset:
samples that come while the eval runs. So a worker starts one eval, with nothing in it, and puts each run into it as
`enqueue_sample(sample, epoch=…)` when it holds the run's lease; what comes out, `sample_complete` hands back.

    worker's loop                          the eval's thread, with a loop of its own
      run ──lease──▶ put ────────────────▶ enqueue_sample ─▶ Inspect: sandbox, setup, solver, limits
      run ◀──seal─── the sample, unscored ◀─ sample_complete

A thread of its own, because a task may block: the worker's heartbeats go on meanwhile. What the eval itself would write
is kept in memory and thrown away; the samples are sealed one by one, and the log is made of those that count.

A run that comes back to a process whose eval has had it (its lease was lost, or another batch of the same task) would
be a second `(id, epoch)`, which Inspect refuses, as it must. So the eval ends, when what is in it has, and a new one
begins; the same when the next run is of another task. Runs wait for that in the order in which they came.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from copy import copy
from typing import Any, Final
from weakref import WeakKeyDictionary

from inspect_ai import Task, eval_async, task_with
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample
from inspect_ai.solver import TaskState

from bus.errors import InputError
from workers.inspecting.background import Background
from workers.inspecting.feed import Feed, Key, Ticket, with_a_way_out
from workers.inspecting.loading import Loaded
from workers.inspecting.quiet import IN_MEMORY, quiet
from workers.inspecting.sealed import SealedSample, marks_of
from workers.usercode import describe

__all__ = ["Host", "host"]

_MOST: Final = 1_000  # samples at once in one eval: how many there are is the worker's to say
_FAREWELL: Final = 5.0  # seconds for the eval of a worker that stops
_PATIENCE: Final = 60.0  # seconds for what was cancelled to leave the eval, before the worker gives itself up


class Host:
    """The evals of a process, one after the other."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._turn = asyncio.Lock()
        self._eval: _Eval | None = None
        self._there = Background("evalbus-inspect")

    async def run(self, loaded: Loaded, sample: Sample, epoch: int) -> SealedSample:
        """Put a sample into the task's eval, and return it as its solver left it.

        A cancellation takes the sample out of the eval. Raises InputError when the eval cannot be, or ended.
        """
        async with self._turn:
            if self._eval is not None and not self._eval.takes(loaded, (str(sample.id), epoch)):
                await self._eval.finish()
                self._eval = None
            if self._eval is None:
                self._eval = _Eval(loaded, self._there)
            running, ticket = self._eval, self._eval.put(sample, epoch)
        return await running.out(ticket)

    async def end(self, loaded: Loaded) -> None:
        """End the eval of this task; nothing when there is none, or another's."""
        async with self._turn:
            if self._eval is not None and self._eval.is_of(loaded):
                await self.aclose()

    async def aclose(self) -> None:
        """End the eval, and what is in it; what holds on is left behind, and ends with the process."""
        running, self._eval = self._eval, None
        if running is not None:
            running.drop_all()
            with contextlib.suppress(TimeoutError, InputError):
                async with asyncio.timeout(_FAREWELL):
                    await running.finish()
        self._there.close()


_HOSTS: WeakKeyDictionary[asyncio.AbstractEventLoop, Host] = WeakKeyDictionary()


def host() -> Host:
    """The one of the running event loop."""
    return _HOSTS.setdefault(asyncio.get_running_loop(), Host())


class _Eval:
    """One `eval_async` in its thread."""

    def __init__(self, loaded: Loaded, there: Background) -> None:
        self._loaded, self._there = loaded, there
        self._home = asyncio.get_running_loop()
        self._tickets: dict[Key, Ticket] = {}
        self._seen: set[Key] = set()
        self._closing = False
        self._changed = asyncio.Event()
        self._ended: asyncio.Future[str] = self._home.create_future()
        self._feed = Feed(self._came, self._left)
        self._running = there.run(self._evaluate())
        self._running.add_done_callback(self._over)

    # --- in the worker's loop ----------------------------------------------------------------------------

    def is_of(self, loaded: Loaded) -> bool:
        """Whether it is this task's."""
        return loaded.task is self._loaded.task

    def takes(self, loaded: Loaded, key: Key) -> bool:
        """Whether a run can be put into this eval: it is of the same task, and was not in it before."""
        return self.is_of(loaded) and key not in self._seen and not self._closing and not self._ended.done()

    def put(self, sample: Sample, epoch: int) -> Ticket:
        """Put a run in."""
        ticket = Ticket(sample, epoch, self._home.create_future())
        self._seen.add(ticket.key)
        self._tickets[ticket.key] = ticket
        self._there.soon(lambda: self._feed.put(ticket))
        return ticket

    async def out(self, ticket: Ticket) -> SealedSample:
        """What came of it."""
        try:
            await _first(ticket.out, self._ended)
            if not ticket.out.done():
                raise InputError(f"the eval of {self._loaded.table.task} ended: {self._ended.result()}")
            return ticket.out.result()
        finally:
            if not ticket.out.done():
                self._drop(ticket)

    def drop_all(self) -> None:
        """Nobody waits for what is in it."""
        for ticket in self._tickets.values():
            self._drop(ticket)

    async def finish(self) -> None:
        """Wait for what is in it, then end it. Raises InputError when it does not end."""
        self._closing = True
        while not self._ended.done() and any(not ticket.gone for ticket in self._tickets.values()):
            await self._change()
        try:
            async with asyncio.timeout(_PATIENCE):
                while self._tickets and not self._ended.done():
                    await self._change()
                self._there.soon(self._feed.close)
                await asyncio.wait({self._ended})
        except TimeoutError:
            # Two evals in a process are refused: whatever holds on, only another process can go on without it.
            raise InputError(
                f"a sample of {self._loaded.table.task} holds on although it was cancelled",
                remedy="a solver that blocks cannot be stopped: let it await",
            ) from None

    async def _change(self) -> None:
        self._changed.clear()
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            await _first(waiting, self._ended)
        finally:
            waiting.cancel()

    def _drop(self, ticket: Ticket) -> None:
        ticket.gone = True
        self._changed.set()
        self._there.soon(ticket.cancel)

    def _settle(self, ticket: Ticket, sample: EvalSample | None) -> None:
        self._tickets.pop(ticket.key, None)
        self._changed.set()
        if sample is not None and not ticket.out.done():
            ticket.out.set_result(SealedSample(sample, ticket.choices))

    def _over(self, running: asyncio.Future[str]) -> None:
        if running.cancelled():
            self._ended.set_result("it was cancelled")
        elif (error := running.exception()) is not None:
            self._ended.set_result(describe(error))
        else:
            self._ended.set_result(running.result())

    # --- in the eval's thread ----------------------------------------------------------------------------

    async def _evaluate(self) -> str:
        quiet()
        [made] = await eval_async(
            self._fed(),
            model=self._loaded.model,
            log_dir=IN_MEMORY,
            log_level="error",
            score=False,
            fail_on_error=False,
            log_samples=False,
            log_realtime=False,
            acp_server=False,
            ctl_server=False,
            max_samples=_MOST,
        )
        return made.status if made.error is None else " ".join(made.error.message.split())[:300]

    def _fed(self) -> Task:
        """The task with what is put in for a dataset, and with a way out of its solver; all else is its own."""
        task, inner = copy(self._loaded.task), self._loaded.task.cleanup

        async def cleanup(state: TaskState) -> None:
            ticket = self._feed.tickets.get((str(state.sample_id), state.epoch))
            if ticket is not None:
                ticket.choices = marks_of(state)
            if inner is not None:
                await inner(state)

        return task_with(task, dataset=self._feed, solver=with_a_way_out(task.solver, self._feed), cleanup=cleanup)

    def _came(self, ticket: Ticket, sample: EvalSample) -> None:
        self._here(self._settle, ticket, sample)

    def _left(self, ticket: Ticket) -> None:
        self._here(self._settle, ticket, None)

    def _here(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            self._home.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return  # the worker's loop is closed: nobody waits any more


async def _first(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
