"""What a worker's eval has for a dataset: samples that are put in while it runs, and taken out again.

All of it happens in the eval's loop; a ticket's `out` alone belongs to the worker's.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
from inspect_ai import SampleSource, enqueue_sample
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalSample
from inspect_ai.solver import Generate, Solver, TaskState, solver

from workers.inspecting.sealed import Mark, SealedSample

__all__ = ["Feed", "Key", "RunGoneError", "Ticket", "with_a_way_out"]

Key = tuple[str, int]
"""A sample's id, as text, and its epoch."""


@dataclass(slots=True)
class Ticket:
    """One run in the eval. `out` belongs to the worker's loop, the rest to the eval's."""

    sample: Sample
    epoch: int
    out: asyncio.Future[SealedSample]
    scope: anyio.CancelScope | None = None
    gone: bool = False
    """Nobody waits for it any more."""
    choices: list[Mark] = field(default_factory=list)

    def cancel(self) -> None:
        """In the eval's loop: take it out, if its solver has begun; else it ends when that begins."""
        if self.scope is not None:
            self.scope.cancel()

    @property
    def key(self) -> Key:
        """By what Inspect knows it."""
        return str(self.sample.id), self.epoch


class RunGoneError(Exception):
    """In the eval: nobody waits for this sample any more."""


class Feed(SampleSource):
    """The eval's dataset: what is put in while it runs. All of it happens in the eval's loop."""

    def __init__(self, came: Callable[[Ticket, EvalSample], None], left: Callable[[Ticket], None]) -> None:
        """`came`, `left`: what is told when a sample has run, or was cancelled before it left anything."""
        self.tickets: dict[Key, Ticket] = {}
        self._came, self._left = came, left
        self._waiting: list[Ticket] = []
        self._wake: asyncio.Event = asyncio.Event()
        self._closing = False
        self._task: contextvars.Context | None = None

    def put(self, ticket: Ticket) -> None:
        """Let a sample run, as soon as the task does."""
        self.tickets[ticket.key] = ticket
        if self._task is None:
            self._waiting.append(ticket)
        else:  # the task's own context: that is how Inspect knows which task it is for
            self._task.run(enqueue_sample, ticket.sample, epoch=ticket.epoch)
        self._wake.set()

    def close(self) -> None:
        """Let the task end, when nothing is in it."""
        self._closing = True
        self._wake.set()

    async def next_samples(self) -> list[Sample] | None:
        """Inspect asks whenever nothing is in the task."""
        self._task = contextvars.copy_context()
        for ticket in self._waiting:
            enqueue_sample(ticket.sample, epoch=ticket.epoch)
        if not self._waiting:
            await self._wake.wait()
        self._waiting.clear()
        self._wake.clear()
        return None if self._closing else []

    async def sample_complete(self, sample: EvalSample) -> list[Sample] | None:
        """It has run, to its end or to an error."""
        ticket = self.tickets.pop((str(sample.id), sample.epoch), None)
        if ticket is not None:
            self._came(ticket, sample)
        return None

    async def sample_abandoned(self, sample: Sample, epoch: int) -> list[Sample] | None:
        """It was cancelled before it left anything."""
        ticket = self.tickets.pop((str(sample.id), epoch), None)
        if ticket is not None:
            self._left(ticket)
        return None


@solver(name="evalbus")
def with_a_way_out(inner: Solver, feed: Feed) -> Solver:
    """The task's solver, which ends when the run's lease is gone."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        ticket = feed.tickets[str(state.sample_id), state.epoch]
        with anyio.CancelScope() as scope:
            ticket.scope = scope
            if ticket.gone:
                scope.cancel()
            state = await inner(state, generate)
        if scope.cancelled_caught:
            raise RunGoneError("nobody waits for this run any more")
        return state

    return solve
