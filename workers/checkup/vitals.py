"""Ask one server how it is: nothing is written, and nothing is judged here.

The scripts of the pipeline are loaded, since whether they compile there is one of the questions; every role would load
them anyway. Of what the user may not ask, nothing is known, and that is no error.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bus.errors import ReplyError
from bus.info import Info, parse_info
from bus.replies import pairs_of
from bus.scripts import all_scripts
from bus.streams import fields_of
from bus.target import Target
from bus.wire import Reply, Wire

__all__ = ["Vitals", "take_vitals"]

_SILENCE = 5.0  # seconds
_PINGS = 100
_SETTINGS = (
    "appendfsync", "busy-reply-threshold", "lua-time-limit", "maxclients", "maxmemory-policy", "min-replicas-to-write",
    "save", "stop-writes-on-bgsave-error", "timeout", "protected-mode",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a server said of itself, and how quickly."""

    target: Target
    info: Info
    settings: Mapping[str, str] | None
    """None when this user may not read the configuration."""
    user: str | None
    """Who we are there; None when this user may not ask."""
    passwordless: bool | None
    """Whether anybody may be that user; None when this user may not ask."""
    round_trips: Sequence[float]
    """Seconds, of so many PINGs one after another, in order of size."""
    clock_ahead: float
    """Seconds by which the server's clock is ahead of ours; right to half of the shortest round trip."""
    broken_scripts: Mapping[str, str]
    """Scripts that the server does not compile, with its error."""
    scripts: int
    """How many were tried."""
    allocator: str | None
    """That of its memory, as it was built, or as was found to be preloaded; None when the server does not say."""

    def setting(self, name: str) -> str | None:
        """A setting; None when it is not known."""
        return None if self.settings is None else self.settings.get(name)

    def number(self, name: str) -> int | None:
        """A field of INFO that is a whole number; None when the server does not say."""
        text = self.info.get(name, "")
        return int(text) if text.lstrip("-").isdecimal() else None

    @property
    def round_trip(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.round_trips)

    @property
    def slow_trip(self) -> float:
        """The 99th percentile, in seconds."""
        return self.round_trips[int(len(self.round_trips) * 0.99) - 1]


async def take_vitals(target: Target) -> Vitals:
    """Raises ServerUnreachable, ServerUnfit, TimeoutError."""
    wire = await Wire.open(target.address(), silence=_SILENCE)
    try:
        async with asyncio.timeout(2 * _SILENCE):
            info = parse_info(await wire.call("INFO"))
            settings = await _asked(wire, "CONFIG", "GET", *_SETTINGS)
            user = await _asked(wire, "ACL", "WHOAMI")
            trips, ahead = await _clocked(wire)
            sources = all_scripts("run")
            answers = await wire.calls([("SCRIPT", "LOAD", one.text) for one in sources])
            return Vitals(
                target=target,
                info=info,
                settings=None if settings is None else fields_of(settings),
                user=user.decode() if user is not None else None,
                passwordless=await _is_open(wire, user),
                round_trips=sorted(trips),
                clock_ahead=ahead,
                broken_scripts={
                    one.name: str(answer)
                    for one, answer in zip(sources, answers, strict=True)
                    if isinstance(answer, ReplyError)
                },
                scripts=len(sources),
                allocator=_allocator(target, info),
            )
    finally:
        wire.close()


def _allocator(target: Target, info: Info) -> str | None:
    """INFO tells what the server was built with. What is preloaded instead is seen of a server on this machine only."""
    built = info.get("mem_allocator")
    if built == "libc" and target.host in (None, "localhost", "127.0.0.1", "::1"):
        with contextlib.suppress(OSError):  # no /proc, or another user's process
            if "jemalloc" in Path(f"/proc/{info.get('process_id')}/maps").read_text(errors="replace"):
                return "jemalloc, preloaded"
    return built


async def _asked(wire: Wire, *command: str | bytes) -> Reply:
    """None where the user may not ask, or the server does not know the command."""
    try:
        return await wire.call(*command)
    except ReplyError:
        return None


async def _clocked(wire: Wire) -> tuple[list[float], float]:
    """Round trips, and how far the server's clock is ahead, by the quickest answer to TIME."""
    trips = []
    for _ in range(_PINGS):
        began = time.perf_counter()
        await wire.call("PING")
        trips.append(time.perf_counter() - began)
    quickest, ahead = float("inf"), 0.0
    for _ in range(5):
        wall, began = time.time(), time.perf_counter()
        seconds, micros = await wire.call("TIME")
        took = time.perf_counter() - began
        if took < quickest:
            quickest, ahead = took, int(seconds) + int(micros) / 1e6 - (wall + took / 2)
    return trips, ahead


async def _is_open(wire: Wire, user: bytes | None) -> bool | None:
    """Whether our user needs no password."""
    if user is None or (said := await _asked(wire, "ACL", "GETUSER", user)) is None:
        return None
    fields = pairs_of(said)
    return b"nopass" in fields.get(b"flags", [])
