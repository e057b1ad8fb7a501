"""A process in which many runs and tool calls are driven at a time, or one suspect alone.

A run that kills its process takes its neighbours in that process with it, and their claims count towards poison as
much as its own. So an entry that was given to somebody before is a suspect: it waits here until it has the process
for itself, and is claimed only then. Whatever dies from there on is its own doing, and nothing is counted against
those that wait beside it. A tool call kills as well as a run, so those that a process makes pass here too.

A run that waits for its tool calls stands aside meanwhile, or each would wait for the other:

| who comes      | waits until                                                                                    |
|----------------|------------------------------------------------------------------------------------------------|
| a suspect      | nobody is in but the run that waits for it: whoever stands aside was claimed, too              |
| a run          | no suspect is in, and none waits                                                               |
| a tool call    | no suspect is in but one that stands aside. It does not give way to suspects that wait, for    |
|                | they may wait for a run that waits for it                                                      |
| who goes on    | no suspect is in but one that stands aside; and if it is a suspect, until who came has left    |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bus.types import BatchId, RunId

__all__ = ["Owner", "Place", "Quarantine"]


@dataclass(frozen=True, slots=True)
class Owner:
    """The run that is driven, or that a tool is called for."""

    batch: BatchId
    run: RunId


@dataclass(slots=True, eq=False)
class Place:
    """What somebody has in a quarantine; `async with` waits for it, is in meanwhile, and leaves."""

    owner: Owner
    suspect: bool
    is_tool: bool
    _quarantine: Quarantine = field(repr=False)
    is_aside: bool = False
    """It waits for its tool calls."""

    async def __aenter__(self) -> Place:
        """Come in: see the module's text for what is waited for."""
        await self._quarantine._come(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let others come."""
        self._quarantine._leave(self)

    @asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Let others in while it waits for its tool calls, and wait to go on. An exception is not kept waiting."""
        self.is_aside = True
        self._quarantine._tell()
        yield
        self.is_aside = False
        self._quarantine._tell()
        await self._quarantine._until(lambda: self._quarantine._may_go_on(self))

    @asynccontextmanager
    async def outside(self) -> AsyncIterator[None]:
        """Be out for a while, as if it had never come in, and come in again. An exception is not kept waiting."""
        self._quarantine._leave(self)
        yield
        await self._quarantine._come(self)


class Quarantine:
    """Many ordinary runs and tool calls at a time, or one suspect alone. One for all consumers of a process."""

    def __init__(self) -> None:
        """Nobody is in."""
        self._in: dict[Place, None] = {}
        self._suspects = 0  # of those who are in
        self._waiting: list[Place] = []  # suspects
        self._changes: list[asyncio.Future[None]] = []  # one for each who waits for a change

    def is_in_the_way(self, place: Place) -> bool:
        """Whether a suspect waits for that one to leave."""
        return any(one.owner != place.owner for one in self._waiting)

    @property
    def is_closed(self) -> bool:
        """Whether a tool call that is read now has to wait for a suspect, or would make one wait for nothing."""
        if any(one.suspect and not one.is_aside for one in self._in):
            return True
        return bool(self._waiting) and not any(one.is_aside for one in self._in)

    def enter(self, owner: Owner, *, suspect: bool, is_tool: bool = False) -> Place:
        """A place, for `async with`."""
        return Place(owner, suspect, is_tool, self)

    def _leave(self, place: Place) -> None:
        if place in self._in:  # it may have left from outside
            del self._in[place]
            self._suspects -= place.suspect
            self._tell()

    async def _come(self, place: Place) -> None:
        if place.suspect or self._suspects or self._waiting:  # nearly never
            await self._wait_to_come(place)
        self._in[place] = None
        self._suspects += place.suspect

    async def _wait_to_come(self, place: Place) -> None:
        if place.suspect:
            self._waiting.append(place)
        try:
            await self._until(lambda: self._has_room_for(place))
        finally:
            if place.suspect:
                self._waiting.remove(place)
                self._tell()  # one that waits no more keeps no run out

    async def _until(self, holds: Callable[[], bool]) -> None:
        # Nothing is awaited between the last question and what the caller does on it: nobody comes in between.
        while not holds():
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._changes.append(change)
            await change

    def _tell(self) -> None:
        if not self._changes:  # nearly always
            return
        changes, self._changes = self._changes, []
        for change in changes:
            if not change.done():
                change.set_result(None)

    def _has_room_for(self, place: Place) -> bool:
        if place.suspect:
            return all(one.is_aside and one.owner == place.owner for one in self._in)
        if place.is_tool:
            return all(one.is_aside or not one.suspect for one in self._in)
        return not self._waiting and not any(one.suspect for one in self._in)

    def _may_go_on(self, place: Place) -> bool:
        # Who stands aside beside a suspect is not driven: it came before, or it is the run that waits for it.
        return all(one is place or one.is_aside or not (one.suspect or place.suspect) for one in self._in)
