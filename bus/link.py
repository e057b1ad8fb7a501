"""A connection that comes back.

`Link` keeps one `Wire` to the server, opens it again when it is lost, and sends again what has no answer. That is safe
because of what is sent: every script carries an identity by which the server knows it again (`duplicate`), and every
plain command that goes through here is a read or may be repeated. The library's own silent retries are not used at all.

A server of our own that died is started again on its data before the next try (`Endpoint.ensure`). When the link came
back, idle times on the server are void: entries went on ageing while nobody could renew them. `grace_until` tells
readers until when nothing may be taken from a silent consumer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import structlog
import tenacity

from bus.errors import ReplyError, ServerUnreachable
from bus.info import parse_info
from bus.port import Runtime
from bus.scripts import Script, call, load_missing
from bus.types import Decision
from bus.wire import SILENCE, Address, Reply, Wire

__all__ = ["Door", "Link"]

T = TypeVar("T")

Arguments = Mapping[str, object] | Callable[[str], Mapping[str, object]]
"""A script's arguments, or how to make them for the server that they are sent to, by its run id."""

log = structlog.get_logger("evalbus.link")

_TRANSIENT = {
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "NOSCRIPT",  # flushed once more between its loading and its call
    "OOM",  # nothing was written, and memory may be freed or granted
    "READONLY",  # a primary that was demoted; the next connection finds the new one
    "TRYAGAIN",
    "UNBLOCKED",
}
"""Error replies that say "not now"."""

_REOPEN = {"READONLY", "MASTERDOWN"}


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ServerUnreachable) or (isinstance(error, ReplyError) and error.code in _TRANSIENT)


class Door(Protocol):
    """Where the server is, and how to bring it back when it is ours."""

    def address(self) -> Address:
        """Where to connect now."""

    async def ensure(self) -> bool:
        """Start a server of our own again if it died. True when it did."""


class Link:
    """See the module's text. One for scripts and reads; another for blocking reads, which hold up all behind them."""

    def __init__(
        self,
        door: Door,
        runtime: Runtime,
        *,
        patience: float = 60.0,
        lease: float = 10.0,
        silence: float = SILENCE,
        scripts: Sequence[Script] = (),
    ) -> None:
        """All in seconds. `patience`: without any answer after which a call gives up; `lease`: of grace.

        `silence`: as for `Wire.open`. `scripts`: those that will be called, loaded as soon as it is open.
        """
        self._door = door
        self._runtime = runtime
        self._patience = patience
        self._lease = lease
        self._silence = silence
        self._scripts = scripts
        self._wire: Wire | None = None
        self._opening = asyncio.Lock()
        self._failed: ServerUnreachable | None = None
        self.opened = 0
        self.grace_until = float("-inf")

    async def run(self, script: Script, keys: Mapping[str, object], argv: Arguments) -> Decision:
        """Call a script that answers one decision; again until it answers."""
        decision = await self.run_many(script, keys, argv)
        return decision[0]

    async def run_many(self, script: Script, keys: Mapping[str, object], argv: Arguments) -> list[Decision]:
        """Call a script that answers a decision for each item."""

        async def once() -> list[Decision]:
            wire = await self.wire()
            answer = await call(wire, script, keys, argv(wire.server) if callable(argv) else argv)
            return answer if isinstance(answer, list) else [answer]

        return await self._insist(once)

    async def command(self, *command: str | bytes | int) -> Reply:
        """One command that may be repeated."""

        async def once() -> Reply:
            return await (await self.wire()).call(*command)

        return await self._insist(once)

    async def commands(self, commands: Sequence[Sequence[str | bytes | int]]) -> list[Reply]:
        """Many commands that may be repeated, in one write. Raises the first error reply."""

        async def once() -> list[Reply]:
            replies = await (await self.wire()).calls(commands)
            for reply in replies:
                if isinstance(reply, ReplyError):
                    raise reply
            return replies

        return await self._insist(once)

    async def wire(self) -> Wire:
        """The live connection, opened if need be. Raises ServerUnreachable, ServerUnfit."""
        wire = self._wire
        if wire is not None and not wire.lost:
            return wire
        failed = self._failed
        async with self._opening:
            if self._wire is None or self._wire.lost:
                if self._failed is not failed:  # tried while we stood in line: one knock for all who wait
                    raise ServerUnreachable(str(self._failed))
                try:
                    if await self._door.ensure():
                        log.warning("server.restarted")
                    wire = await Wire.open(self._door.address(), silence=self._silence)
                    try:
                        await load_missing(wire, self._scripts)
                        facts = parse_info(await wire.call("INFO", "server"))
                    except BaseException:
                        wire.close()
                        raise
                    wire.server = facts.get("run_id", "")
                    self._wire = wire
                except ServerUnreachable as error:
                    self._failed = error
                    raise
                self.opened += 1
                if self.opened > 1:
                    self.grace_until = self._runtime.now() + self._lease
                    log.warning("link.reopened", times=self.opened)
            return self._wire

    async def _insist(self, once: Callable[[], Awaitable[T]]) -> T:
        try:
            return await once()
        except (ServerUnreachable, ReplyError) as error:
            self._look_at(error)
        async for attempt in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(_may_pass),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
            stop=tenacity.stop_after_delay(self._patience),
            sleep=self._runtime.sleep,
            reraise=True,
        ):
            with attempt:
                try:
                    return await once()
                except ReplyError as error:
                    self._look_at(error)
                    raise
        raise AssertionError("unreachable")

    def _look_at(self, error: ServerUnreachable | ReplyError) -> None:
        """Let transient errors pass; raise the others for good."""
        if not _may_pass(error):
            raise error
        if isinstance(error, ReplyError) and error.code in _REOPEN and self._wire is not None:
            self._wire.close()

    def close(self) -> None:
        """Close; whatever is in flight has an unknown outcome."""
        if self._wire is not None:
            self._wire.close()
