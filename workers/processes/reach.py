"""Whether an endpoint that cannot be reached is down, or only out of this machine's reach.

Both look alike from here: no connection. But a fleet knows more than one of its machines: who gets an answer says so,
once a second at most, in a number beside the endpoint's buckets on the server. When that number grows while here one
attempt after the other finds no way (a resolver that has no answer, a proxy or a route that only this machine has), it
is the machine, and its runs are others'. When it does not, the endpoint is down for all, and that is for the call's
own patience to end (`workers.modelling.calls`).

Some errors need no witness (`workers.endpoints.failures`): that this machine's resolver can't be asked, that it has no
network, no port, no file left. But a whole fleet may be so, for a name that none of its resolvers can find. When nobody
has heard an answer for minutes, and there is still no way, that is for the call's patience, too: the batch must end.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from bus.errors import MachineError, ServerError
from bus.port import Runtime
from workers.endpoints import EndpointError, UnusableError
from workers.processes.machine import machine_error

__all__ = ["Reach", "Streak", "Witnesses"]

_TELL_EVERY: Final = 1.0
"""Seconds between two words to the others that an answer came."""
_ENOUGH: Final = 4
"""Attempts without a connection, nearly two seconds, before a single one counts as anything but an accident."""
_HOPELESS: Final = 300.0
"""Seconds without an answer to anybody beyond which a machine that finds no way does not take that for its own."""


class Witnesses(Protocol):
    """How often anybody got an answer of an endpoint: `bus.endpoint_limits.EndpointLimits`."""

    async def answered(self) -> None:
        """Say that an answer came."""

    async def answers(self) -> int:
        """How often that was said."""


class Reach:
    """Of one endpoint, as one process has it."""

    def __init__(self, witnesses: Witnesses, try_it: Callable[[], Awaitable[None]]) -> None:
        """`try_it`: connects, and raises MachineError when it can't."""
        self._witnesses, self._try_it = witnesses, try_it
        self._told = float("-inf")
        self._silent_since, self._heard_then = 0.0, (-1, -1)
        self.heard = 0
        """Answers that came here."""

    async def answered(self, runtime: Runtime) -> None:
        """An answer came."""
        self.heard += 1
        if runtime.now() - self._told >= _TELL_EVERY:
            self._told = runtime.now()
            with contextlib.suppress(ServerError):  # the answer is bound; who needs a witness has others
                await self._witnesses.answered()

    async def others(self) -> int:
        """How often anybody has said that one came."""
        return await self._witnesses.answers()

    async def is_hopeless(self, now: float) -> bool:
        """Whether nobody has heard an answer for a long time, as far as was looked. `now`: seconds."""
        heard = self.heard, await self.others()
        if heard != self._heard_then:
            self._silent_since, self._heard_then = now, heard
        return now - self._silent_since >= _HOPELESS

    def fault(self, error: EndpointError) -> MachineError:
        """That of this machine."""
        return machine_error(str(error), self._try_it)

    def local_fault(self, error: EndpointError, runtime: Runtime) -> MachineError:
        """Likewise, of which nobody else was asked: it is looked whether anybody has a way at all."""

        async def recheck() -> None:
            try:
                await self._try_it()
            except MachineError:
                if not await self.is_hopeless(runtime.now()):
                    raise

        return machine_error(str(error), recheck)


class Streak:
    """Attempts at one call that found no way to the endpoint, one after the other."""

    def __init__(self, reach: Reach, runtime: Runtime) -> None:
        """None yet."""
        self._reach, self._runtime = reach, runtime
        self._count = self._others = self._here = 0

    async def fault(self, error: EndpointError) -> MachineError | None:
        """After one more failure: this machine's fault, or None when it may be the endpoint's."""
        if not (isinstance(error, UnusableError) and error.unreachable):
            self._count = 0
            return None
        self._count += 1
        if self._count == 1:
            self._here, self._others = self._reach.heard, await self._reach.others()
        if self._count < _ENOUGH:
            return None
        if error.local:
            hopeless = await self._reach.is_hopeless(self._runtime.now())
            return None if hopeless else self._reach.local_fault(error, self._runtime)
        if self._reach.heard == self._here and await self._reach.others() != self._others:
            return self._reach.fault(error)
        return None
