"""What a consumer has in hand: entries of a stream, each with the lease that was minted for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeAlias

from bus.port import Entry, Ref
from bus.types import BatchId, Decision, EntryId
from workers.catalogue import Served
from workers.quarantine import Place
from workers.solver_time import SolverTime

__all__ = ["Holding", "Lease"]


@dataclass(slots=True, eq=False)
class Lease:
    """One entry in hand, and the lease that was minted for it."""

    entry: Entry
    served: Served
    """What it was taken for: to be driven by also when its batch has ended meanwhile, and is served no more."""
    redelivered: bool = False
    """It was given to somebody before: a suspect."""
    ref: Ref | None = None
    task: asyncio.Task[None] | None = None
    fenced: bool = False
    waiting: bool = False
    """It cannot be claimed yet."""
    time: SolverTime | None = None
    """Of its run's solver, or of its judge, where it has one: it stands while that waits for room that others have."""
    place: Place | None = None
    """In its process's quarantine, while it is driven."""
    made_way: bool = False
    """It is being handed back for another."""
    tries: float | None = None
    """When it was taken to find out whether the machine can work again; None when it was taken to be worked on."""
    ending: bool = False
    """The script that ends the lease is under way: beats leave it out, or they would report its end as a loss."""
    claiming: bool = False
    """Its claim is under way."""
    stopped: bool = False
    """It is not to be driven any further."""

    async def claimed(self, claim: Awaitable[Decision]) -> Decision:
        """What a claim is answered. A stop waits for it: what was granted and not heard of could not be handed back."""
        self.claiming = True
        try:
            return await claim
        finally:
            self.claiming = False
            if self.stopped:
                self.stop()

    def stop(self) -> None:
        """Drive it no further than to the answer of its claim."""
        self.stopped = True
        if self.task is not None and not self.claiming:
            self.task.cancel()

    def only_waits(self, seconds: float) -> bool:
        """Whether its run has waited so long already."""
        return self.time is not None and self.time.standing() >= seconds

    def let_go(self) -> None:
        """Drop everything: the lease is somebody else's now."""
        self.fenced = True
        if self.task is not None:
            self.task.cancel()


Holding: TypeAlias = dict[tuple[BatchId, EntryId], Lease]
"""All of one consumer's, those that wait to be claimed too."""
