"""What is waited for before an answer counts: that it would survive the loss of power, or of the primary.

A script's answer says that the server has applied it, in memory. A second later it is on disk (`appendfsync everysec`),
a moment later at the replicas; a machine that loses its power before that, or a primary that dies, takes it along. Then
somebody holds a lease that nobody granted. That can enter no result (another life of the server voids all tokens of
the one before, `lua/run/restarted.lua`), but an effect that it licensed has happened, and nobody knows of it. So a
batch may ask for more:

    relaxed     nothing is waited for
    standard    a close, before the number is shown
    strict      also each answer that lets something leave: a lease, a prompt, a call of a tool

How it is waited for depends on the server:

    appendfsync always        on disk before it is answered: nothing to do
    Redis 7.2 and newer       WAITAOF 1 0
    Valkey                    its WAITAOF acknowledges before the disk has it, when it syncs every second: `strict`
                              wants `always`, `standard` waits for that second to pass
    our own, embedded one     syncs every second; it is told to sync now, which takes what came before along, and then
                              to go on as it was: that is for all of a directory's processes
    behind Sentinels          also WAIT 1: a replica has it, which may be the primary soon. `standard` goes without
                              while there is none: a set that lost its last replica must be able to close a batch

WAIT and WAITAOF speak of the connection on which they are sent; on another they answer at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.info import Info, parse_info
from bus.types import Durability
from bus.wire import Wire

__all__ = ["LICENCES", "OWN_FSYNC", "Guarantee", "guarantee_of"]

LICENCES = frozenset({"run.claim", "run.score_claim", "run.open_call", "run.open_judge", "run.tool_sent"})
"""The scripts whose `commit` lets something leave: a solver or a judge begins, a prompt or an effect goes out."""

_PATIENCE_MS = 5_000
"""For one WAIT; who gets no answer asks the script again, which is a duplicate by then, and waits again."""
_SECOND = 1.2
"""Seconds after which `everysec` has written what was there before, with a margin."""
_TRIES = 10
"""So often a server of our own is told to sync; then its second is waited for."""
OWN_FSYNC = "everysec"
"""How a server of our own syncs (`bus.launch`)."""
_WAITAOF = (7, 2)  # the first Redis that has it


@dataclass(frozen=True, slots=True)
class Guarantee:
    """How one server is made to say that what a connection wrote would survive."""

    disk: bool = False
    """By WAITAOF."""
    replica: bool = False
    """By WAIT."""
    lone: bool = False
    """Without a replica, while there is none."""
    now: bool = False
    """By having the server sync at once: it is ours, and may be told to."""
    seconds: float = 0.0
    """To wait besides, where no command can tell."""

    async def confirm(self, wire: Wire, mark: str) -> None:
        """What was written on this connection would survive. Raises ServerUnreachable when nobody confirms it.

        `mark`: a key to write to, where it takes another write to make the server sync.
        """
        if self.now:
            # It syncs when it has run all that has come by then, so the old policy must come in another write. That of
            # somebody else who confirms may have come along with ours: then it has not synced.
            for _ in range(_TRIES):
                await _whole(wire, ("CONFIG", "SET", "appendfsync", "always"), ("SET", mark, 1))
                if await _fsync(wire) != OWN_FSYNC:
                    break
            else:
                await asyncio.sleep(_SECOND)
            # Not what was found: that may be somebody else's `always`, and all scripts would wait for the disk.
            await _whole(wire, ("CONFIG", "SET", "appendfsync", OWN_FSYNC))
        if self.disk:
            local, _ = await wire.call("WAITAOF", 1, 0, _PATIENCE_MS)
            if local < 1:
                raise ServerUnreachable(f"the server did not write to its disk within {_PATIENCE_MS // 1000} s")
        if self.replica:
            replicas = 0 if self.lone and await _is_alone(wire) else await wire.call("WAIT", 1, _PATIENCE_MS)
            if replicas < 1 and not (self.lone and await _is_alone(wire)):
                raise ServerUnreachable(f"no replica followed the primary within {_PATIENCE_MS // 1000} s")


async def guarantee_of(wire: Wire, info: Info, wanted: Durability, *, watched: bool, ours: bool) -> Guarantee:
    """How `wanted` is had on this server. `info`: of its sections server and persistence.

    `watched`: by Sentinels; `ours`: an embedded one, whose settings are ours to change. Raises ServerUnfit where it
    cannot be had, with what to change.
    """
    if wanted is Durability.RELAXED:
        return Guarantee()
    if info.get("aof_enabled") != "1":
        raise ServerUnfit(
            f"durability {wanted} needs the append-only file, and the server has none "
            "(CONFIG SET appendonly yes, or --durability relaxed)"
        )
    if ours:
        return Guarantee(now=True)
    fsync = await _fsync(wire)
    lone = wanted is Durability.STANDARD
    if fsync == "always":
        return Guarantee(replica=watched, lone=lone)
    product = "valkey" if "valkey_version" in info else "redis"
    version = tuple(int(part) for part in info.get(f"{product}_version", "0").split(".") if part.isdecimal())
    if product == "redis" and version >= _WAITAOF:
        return Guarantee(disk=True, replica=watched, lone=lone)
    if wanted is Durability.STRICT:
        known = "its appendfsync cannot be read" if fsync is None else f"its appendfsync is {fsync}"
        raise ServerUnfit(
            f"durability strict needs a server that has written to its disk when it answers; {known} "
            "(CONFIG SET appendfsync always; who may not read it needs the right to config|get)"
        )
    return Guarantee(replica=watched, lone=lone, seconds=_SECOND)


async def _is_alone(wire: Wire) -> bool:
    facts = parse_info(await wire.call("INFO", "replication"))
    return facts.get("connected_slaves") == "0"


async def _whole(wire: Wire, *commands: tuple[str | int, ...]) -> None:
    for answer in await wire.calls(commands):
        if isinstance(answer, ReplyError):
            raise answer


async def _fsync(wire: Wire) -> str | None:
    """`always`, `everysec`, `no`; None where this user may not ask."""
    try:
        flat = await wire.call("CONFIG", "GET", "appendfsync")
    except ReplyError:
        return None
    found: Mapping[str, str] = dict(zip(*[iter(word.decode() for word in flat)] * 2, strict=True))
    return found.get("appendfsync")
