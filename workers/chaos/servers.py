"""Faults of the server, and of what stands in its streams."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.port import Group
from bus.wire import Reply
from workers.chaos.plan import Strike
from workers.chaos.scene import Scene

__all__ = [
    "copy_entry",
    "failover",
    "memory_full",
    "redeliver",
    "script_flush",
    "server_clock",
    "server_kill",
    "server_kill_always",
    "server_lose_tail",
]

_AWAY = (ReplyError, ServerUnfit, ServerUnreachable)
_LONG_AGO_MS = 10_000_000
_LONGEST_AWAY = 6.0
"""Seconds. A role gives a server up that is away for a minute; between two faults it must be there for a while."""
_GROUPS = (Group.WORKER, Group.SCORER, Group.TOOLS)


async def server_kill(scene: Scene, strike: Strike) -> None:
    """SIGKILL, and a start on the data: the system keeps what a dead process has written."""
    await _killed(scene, strike)


async def server_kill_always(scene: Scene, strike: Strike) -> None:
    """The same, while it writes each decision to the disk before it answers."""
    server = scene.stage.server
    if server is None:
        return
    with contextlib.suppress(*_AWAY):
        await scene.stage.ask("CONFIG", "SET", "appendfsync", "always")
        await scene.pause(strike.between(0.1, 0.5) * scene.lease)
        await _killed(scene, strike)  # it comes back with what its file says: everysec


async def _killed(scene: Scene, strike: Strike) -> None:
    server = scene.stage.server
    if server is None:
        return
    async with server.lock:
        scene.struck(strike)
        await server.process.kill()
        try:
            await scene.pause(min(strike.between(0.05, 1.2) * scene.lease, _LONGEST_AWAY))
        finally:
            await server.process.start()


async def server_lose_tail(scene: Scene, strike: Strike) -> None:
    """SIGKILL, and of its file all that was written in the last moments is gone."""
    server = scene.stage.server
    if server is None:
        return
    async with server.lock:
        keep = server.log_file().stat().st_size
        try:
            await scene.pause(strike.between(0.1, 0.9))  # at most the second that everysec may lose
        finally:
            await server.process.kill()
            if await server.lose_tail(keep):
                scene.struck(strike)
            await server.process.start()


async def failover(scene: Scene, strike: Strike) -> None:
    """The primary is killed, behind Sentinels or in a cluster, and comes back as a follower."""
    servers = scene.stage.servers
    if servers is None:
        return
    async with servers.lock:
        scene.struck(strike)
        await servers.fail_over(strike.between(0.0, 1.0) * scene.lease)


async def server_clock(scene: Scene, strike: Strike) -> None:
    """Forth, all leases have run out at once; back, none does. Then it is set right, which is a jump like the other."""
    server = scene.stage.server
    if server is None or not server.has_clock:
        return
    async with server.lock:
        far = abs(strike.between(-3, 3)) + 1
        server.move_clock(scene.lease * (far if strike.length >= 0.5 else -far))  # noqa: PLR2004 - half of them
        scene.struck(strike)
        try:
            await scene.pause(scene.lease)
        finally:
            server.move_clock(0)


async def script_flush(scene: Scene, strike: Strike) -> None:
    """It knows no script any more."""
    with contextlib.suppress(*_AWAY):
        await scene.stage.ask("SCRIPT", "FLUSH", "ASYNC")
        scene.struck(strike)


async def memory_full(scene: Scene, strike: Strike) -> None:
    """It takes no writes: its limit is far below what it holds."""
    server = scene.stage.server
    if server is None:
        return
    async with server.lock:
        try:
            await scene.stage.ask("CONFIG", "SET", "maxmemory", 1)
            scene.struck(strike)
            await scene.pause(min(strike.between(0.1, 0.8) * scene.lease, _LONGEST_AWAY))
        except _AWAY:
            pass
        finally:
            with contextlib.suppress(*_AWAY):
                await scene.stage.ask("CONFIG", "SET", "maxmemory", 0)


async def redeliver(scene: Scene, strike: Strike) -> None:
    """What somebody works on looks as if he had long been silent: whoever looks next takes it."""
    with contextlib.suppress(*_AWAY):
        held = {
            f"{group.value} {entry.decode()}": (group, entry, owner)
            for group in _GROUPS
            for entry, owner, _, _ in await scene.stage.ask(
                "XPENDING", scene.keys.stream(group.stream), group.on_server, "-", "+", 100
            )
        }
        if not held:
            return
        group, entry, owner = held[strike.of(list(held))]
        taken = await scene.stage.ask(
            "XCLAIM", scene.keys.stream(group.stream), group.on_server, owner, 0, entry, "IDLE", _LONG_AGO_MS, "JUSTID"
        )
        if taken:
            scene.struck(strike, entry.decode())


async def copy_entry(scene: Scene, strike: Strike) -> None:
    """A message that is in a stream comes into it once more."""
    with contextlib.suppress(*_AWAY):
        there: Mapping[str, tuple[str, Reply]] = {
            f"{group.value} {entry.decode()}": (scene.keys.stream(group.stream), fields)
            for group in _GROUPS
            for entry, fields in await scene.stage.ask("XRANGE", scene.keys.stream(group.stream), "-", "+", "COUNT", 50)
            if fields
        }
        if not there:
            return
        name = strike.of(list(there))
        stream, fields = there[name]
        await scene.stage.ask("XADD", stream, "*", *fields)
        scene.struck(strike, name)
