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
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import structlog
import tenacity

from bus import failpoints
from bus.calling import Command, call, call_together
from bus.durability import LICENCES, Guarantee, guarantee_of
from bus.errors import ReplyError, ServerUnreachable
from bus.info import Info, parse_info
from bus.port import Runtime
from bus.scripts import Script
from bus.types import Decision, Durability
from bus.wire import SILENCE, Address, Reply, Wire

__all__ = ["HURRIED", "Door", "Link", "may_pass"]

T = TypeVar("T")

Arguments = Mapping[str, object] | Callable[[str], Mapping[str, object]]
"""A script's arguments, or how to make them for the server that they are sent to, by its run id."""

log = structlog.get_logger("evalbus.link")

_TRANSIENT = {
    "ASK",  # the slot is being moved, and this key is on its other side already; MOVED comes when all are
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MOVED",  # another server of the cluster has the slot; the next connection finds it
    "NOSCRIPT",  # flushed once more between its loading and its call
    "OOM",  # nothing was written, and memory may be freed or granted
    "READONLY",  # a primary that was demoted; the next connection finds the new one
    "TRYAGAIN",
    "UNBLOCKED",
}
"""Error replies that say "not now"."""

_REOPEN = {"CLUSTERDOWN", "MASTERDOWN", "MOVED", "READONLY"}


HURRIED = 3.0
"""Seconds that a process has for its last calls once it was told to stop; then an answer is not waited for any more."""
_HURRIED_SILENCE = 1.5
"""Seconds, as `SILENCE`, from then on."""


def may_pass(error: BaseException) -> bool:
    """Whether the same command may be answered when it is sent again."""
    return isinstance(error, ServerUnreachable) or (isinstance(error, ReplyError) and error.code in _TRANSIENT)


def _check_serves(facts: Info) -> None:
    """Raises ServerUnreachable for a server that does not take decisions yet, or any more."""
    if facts.get("role", "master") != "master":  # demoted, or not promoted yet
        raise ServerUnreachable("the server there is a replica")
    if facts.get("loading") == "1":  # until it has its data, Valkey also says that it keeps no append-only file
        raise ServerUnreachable("the server is loading its data")


def _forget(answer: asyncio.Future[Reply]) -> None:
    if not answer.cancelled():
        answer.exception()


class Door(Protocol):
    """Where the server is, and how to bring it back when it is ours."""

    def address(self) -> Address:
        """Where to connect now."""

    async def ensure(self) -> bool:
        """Before each connection. Start a server of our own again if it died; True when it did."""

    @property
    def is_watched(self) -> bool:
        """Whether a replica takes its place when it dies."""

    @property
    def is_ours(self) -> bool:
        """Whether its settings are ours to change."""


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
        durability: Durability = Durability.RELAXED,
        mark: str = "",
        waits: bool = False,
    ) -> None:
        """All in seconds. `patience`: without any answer after which a call gives up; `lease`: of grace.

        `silence`: as for `Wire.open`. `durability`: what is waited for before a licence is handed out, and by
        `confirm`; `mark`: a key that is written to for that. `waits`: reads that wait go through it; see `end_wait`.
        """
        self._door = door
        self._runtime = runtime
        self._patience = patience
        self._lease = lease
        self._silence = silence
        self._durability = durability
        self._mark = mark
        self._waits = waits
        self._gives_up: float | None = None
        self._opening_limit: asyncio.Timeout | None = None
        self._guarantee = Guarantee()
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
            if failpoints.ARMED is not None:
                await failpoints.ARMED.before(script.name)
            given = argv(wire.server) if callable(argv) else argv
            answer = await call(wire, script, keys, given)
            if failpoints.ARMED is not None:
                await failpoints.ARMED.after(script.name, lambda: call(wire, script, keys, given))
            if self._durability is Durability.STRICT and script.name in LICENCES:
                await self._guarantee.confirm(wire, self._mark)
            return answer if isinstance(answer, list) else [answer]

        return await self._insist(once)

    async def run_together(
        self, script: Script, shared: Sequence[str], commands: Callable[[str], Sequence[Command]]
    ) -> list[Decision | ReplyError]:
        """Call a script that carries several commands; an answer each, in their order. An error is one command's own.

        `shared`: the keys that all have in common; `commands`: how to make them for the server that they are sent to.
        """

        async def once() -> list[Decision | ReplyError]:
            wire = await self.wire()
            if failpoints.ARMED is not None:
                await failpoints.ARMED.before(script.name)
            made = commands(wire.server)
            if not made:
                return []
            answers = await call_together(wire, script, shared, made)
            if failpoints.ARMED is not None:
                await failpoints.ARMED.after(script.name, lambda: call_together(wire, script, shared, made))
            if self._durability is Durability.STRICT and script.name in LICENCES:
                await self._guarantee.confirm(wire, self._mark)
            return answers

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

    async def confirm(self) -> None:
        """Wait until all that the server has applied by now, for whomever, would survive.

        Its log is one, in order; so a write of our own is confirmed, and what came before it is too. Does nothing where
        nothing is to be waited for.
        """
        if self._durability is Durability.RELAXED:
            return

        async def once() -> None:
            wire = await self.wire()
            await wire.call("SET", self._mark, 1)
            await self._guarantee.confirm(wire, self._mark)
            await self._runtime.sleep(self._guarantee.seconds)

        await self._insist(once)

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
                    self._wire = await self._open()
                except ServerUnreachable as error:
                    self._failed = error
                    raise
                self.opened += 1
                if self.opened > 1:
                    self.grace_until = self._runtime.now() + self._lease
                    log.warning("link.reopened", times=self.opened)
            return self._wire

    async def _open(self) -> Wire:
        try:
            async with asyncio.timeout_at(self._gives_up) as self._opening_limit:
                if await self._door.ensure():
                    log.warning("server.restarted")
                wire = await Wire.open(self._door.address(), silence=self._silence)
                try:
                    facts = parse_info(await wire.call("INFO", "server", "persistence", "replication"))
                    _check_serves(facts)
                    self._guarantee = await guarantee_of(
                        wire, facts, self._durability, watched=self._door.is_watched, ours=self._door.is_ours
                    )
                except BaseException:
                    wire.close()
                    raise
        except TimeoutError:
            raise ServerUnreachable("the server does not answer, and this process was told to stop") from None
        finally:
            self._opening_limit = None
        wire.server = facts.get("run_id", "")
        if self._waits:
            wire.ask_for_id()
        return wire

    def hurry(self) -> None:
        """The process was told to stop: from now on the server has a few seconds, not a minute, to answer.

        What it does not answer by then is left as after a death: leases run out, and others take what was held.
        """
        if self._gives_up is not None:
            return
        self._gives_up = asyncio.get_running_loop().time() + HURRIED
        self._silence = min(self._silence, _HURRIED_SILENCE)
        if self._wire is not None:
            self._wire.hurry(self._silence)
        if self._opening_limit is not None:
            with contextlib.suppress(RuntimeError):  # it has run out already
                self._opening_limit.reschedule(self._gives_up)

    def end_wait(self, reader: Link) -> None:
        """Have the server end the read that waits on another link's connection, if one does; what it has is delivered.

        Closing that connection would do as well, but what the server had just sent would be lost until a lease ran out.
        """
        ours, theirs = self._wire, reader._wire
        if ours is not None and theirs is not None and theirs.client_id is not None:
            ours.call("CLIENT", "UNBLOCK", theirs.client_id).add_done_callback(_forget)

    def _is_out_of_patience(self, state: tenacity.RetryCallState) -> bool:
        if self._gives_up is not None and asyncio.get_running_loop().time() >= self._gives_up:
            return True
        return (state.seconds_since_start or 0.0) >= self._patience

    async def _insist(self, once: Callable[[], Awaitable[T]]) -> T:
        try:
            return await once()
        except (ServerUnreachable, ReplyError) as error:
            self._look_at(error)
        async for attempt in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(may_pass),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
            stop=self._is_out_of_patience,
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
        if not may_pass(error):
            raise error
        if isinstance(error, ReplyError) and error.code in _REOPEN and self._wire is not None:
            self._wire.close()

    def close(self) -> None:
        """Close; whatever is in flight has an unknown outcome."""
        if self._wire is not None:
            self._wire.close()
