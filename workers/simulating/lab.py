"""The endpoint of a simulated batch, a model and a tool server in one: it answers, misbehaves when told to, and counts.

Its counts are the other side of the fences' claims. They are made where the effect happens: a call whose caller has
died meanwhile counts like any other, and so do the tokens of an answer that nobody waits for any more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Protocol

from bus.checker import Books
from workers.simulating.faults import Fault, Where
from workers.tools.values import NothingDoneError

__all__ = ["Asked", "Caller", "Lab"]


class Caller(Protocol):
    """Who calls: `workers.simulating.process.Process`."""

    async def gate(self) -> None:
        """Where it meets the world."""

    def strikes(self, at: str, where: Where = "step") -> Fault | None:
        """What happens to its next call."""

    def latency(self) -> float:
        """Seconds that a call is on its way."""


@dataclass(slots=True)
class Asked:
    """A request to the model, as the endpoint has it."""

    billed: int
    open: bool = True
    """It may still cost more."""


@dataclass(slots=True)
class Lab:
    """See the module's text."""

    requests: dict[str, Asked] = field(default_factory=dict)
    effects: Counter[str] = field(default_factory=Counter)
    undone: Counter[str] = field(default_factory=Counter)

    def figure(self, request: str) -> int | None:
        """What a request cost; None while it may cost more, and for one that never came."""
        asked = self.requests.get(request)
        return None if asked is None or asked.open else asked.billed

    @property
    def tokens(self) -> int:
        """Of all requests."""
        return sum(asked.billed for asked in self.requests.values())

    def books(self, *, tokens: bool) -> Books:
        """For the checker. `tokens`: the ledger is to have all of them."""
        return Books(
            tokens=self.tokens if tokens else None,
            effects={key: times for key, times in self.effects.items() if times},
            undone=dict(self.undone),
        )

    # --- tools -------------------------------------------------------------------------------------------

    async def effect(self, caller: Caller, key: str, text: str) -> str:
        """Do something that stays done, and say so."""
        return await self._called(caller, self.effects, key, text)

    async def undo(self, caller: Caller, key: str, text: str) -> str:
        """Take it back."""
        return await self._called(caller, self.undone, key, text)

    async def look(self, caller: Caller, text: str) -> str:
        """Read something."""
        return await self._called(caller, None, "", text)

    async def _called(self, caller: Caller, counts: Counter[str] | None, key: str, text: str) -> str:
        await caller.gate()
        fault = caller.strikes("tool", "tool")
        kind = "" if fault is None else fault.kind
        loop = asyncio.get_running_loop()
        if kind == "tool-refused":
            raise NothingDoneError("not now")
        if kind == "tool-unreachable":
            await asyncio.Event().wait()
        late = 0.0 if fault is None else fault.seconds
        if counts is not None:
            # It has left: whatever becomes of its caller, it arrives.
            loop.call_later(caller.latency() + (late if kind == "tool-late" else 0.0), counts.update, (key,))
        if kind == "tool-silent":
            await asyncio.Event().wait()
        await asyncio.sleep(late + 0.01)
        await caller.gate()
        return text
