"""Whether a server can carry a batch, found out before anything is spent.

A fence that a server may forget is none. So a server that may evict keys, that is a replica, that is too old
for the scripts, or that would refuse half of the commands, is refused here, in one line that says what to
change. Reading settings is not enough: a short script asks the server itself, with this very user, and it is
refused up front exactly when a writing script would be (full memory, read-only, a disk that cannot be
written), without writing anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.info import Info, parse_info
from bus.keys import registry
from bus.replies import hash_of
from bus.rights import COMMANDS
from bus.sentinel import located
from bus.target import Target
from bus.topology import Topology
from bus.types import Plane
from bus.unfit import GRANT, SILENCE, refused, tls_hint, unfit, unreachable
from bus.wire import Wire

__all__ = ["ServerFacts", "check_fit"]

_LOADING = 10.0  # seconds to wait for a server that is reading its data
_MINIMUM = {"redis": (7, 0), "valkey": (8, 0)}

_PROBE = """#!lua
local denied = {}
for _, line in ipairs(ARGV) do
  local command = {}
  for word in string.gmatch(line, '%S+') do command[#command + 1] = word == 'KEY' and KEYS[1] or word end
  if not redis.acl_check_cmd(unpack(command)) then denied[#denied + 1] = string.upper(command[1]) end
end
return denied
"""
"""Not one of the bus's scripts in `lua/`: it decides nothing and leaves no trace."""


_Product = Literal["redis", "valkey"]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A fit server, as it described itself."""

    product: _Product
    version: tuple[int, ...]
    run_id: str
    role: str
    aof: bool
    """Whether the append-only file is on."""
    fsync: str | None
    """`always`, `everysec` or `no`; None when this user may not read the configuration."""
    maxmemory_policy: str
    maxmemory: int
    """Bytes; 0 for no limit."""
    warnings: tuple[str, ...]
    """What makes it less safe than it could be, one line each."""

    @property
    def title(self) -> str:
        """`Valkey 9.1.2`."""
        return f"{self.product.capitalize()} {'.'.join(map(str, self.version))}"


async def check_fit(
    target: Target, *, plane: Plane = Plane.LIVE, commands: Sequence[str] = COMMANDS, may_evict: bool = False
) -> ServerFacts:
    """Examine a server, for a user who will call `commands`; none when it is only looked at.

    `may_evict`: one that may drop keys is not refused for it, and the rest is asked: whoever asks judges that himself.

    Of a cluster each primary is; the facts are those of the first, the warnings those of all. Raises ServerUnreachable
    or ServerUnfit, and InputError for the files of TLS.
    """
    wanted = _Wanted(plane, commands, may_evict)
    if target.cluster is None:
        return await _check_one(await located(target), wanted, None)
    primaries = await Topology(target).primaries(plane)
    found = [await _check_one(one.target, wanted, one.shards) for one in primaries]
    return replace(found[0], warnings=tuple(line for one in found for line in one.warnings))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a server is examined for: see `check_fit`."""

    plane: Plane
    commands: Sequence[str]
    may_evict: bool


async def _check_one(target: Target, wanted: _Wanted, shards: Sequence[int] | None) -> ServerFacts:
    """`shards`: those that a primary of a cluster has; None for a single server."""
    address = target.address()
    try:
        async with asyncio.timeout(SILENCE):
            wire = await Wire.open(address)
    except (ServerUnreachable, TimeoutError) as error:
        unreachable(target, error, tls_hint(target))
    except ServerUnfit as error:
        cause = error.__cause__
        refused(target, cause if isinstance(cause, ReplyError) else ReplyError(str(error)))
    try:
        info = await _loaded(wire)
        async with asyncio.timeout(SILENCE):
            return await _examine(target, wanted, shards, wire, info)
    except (ServerUnreachable, TimeoutError) as error:
        unreachable(target, error)
    except ReplyError as error:
        refused(target, error)
    finally:
        wire.close()


async def _loaded(wire: Wire) -> Info:
    """What the server says of itself, once it has read its data."""
    deadline = asyncio.get_running_loop().time() + _LOADING
    while True:
        async with asyncio.timeout(SILENCE):
            info = parse_info(await wire.call("INFO"))
        if info.get("loading", "0") == "0":
            return info
        if asyncio.get_running_loop().time() > deadline:
            raise ServerUnreachable(f"it has been loading its data for {_LOADING:.0f} s (try again later)")
        await asyncio.sleep(0.05)


async def _examine(
    target: Target, wanted: _Wanted, shards: Sequence[int] | None, wire: Wire, info: Info
) -> ServerFacts:
    product, version = _product(target, info)
    role = _place(target, info, in_cluster=shards is not None)
    config = await _config(wire)
    policy = config.get("maxmemory-policy") or info.get("maxmemory_policy", "not known")
    if policy != "noeviction" and not wanted.may_evict:
        remedy = "CONFIG SET maxmemory-policy noeviction"
        unfit(target, f"its maxmemory-policy is {policy}: it may drop keys that the fences rest on", remedy)
    at = [0] if shards is None else shards
    if wanted.commands and at:
        await _probe(target, registry(wanted.plane, at[0]), wanted.commands, wire)
    aof, fsync = info.get("aof_enabled") == "1", config.get("appendfsync")
    return ServerFacts(
        product=product,
        version=version,
        run_id=info.get("run_id", ""),
        role=role,
        aof=aof,
        fsync=fsync,
        maxmemory_policy=policy,
        maxmemory=int(info.get("maxmemory", 0)),
        warnings=tuple(_warnings(target, aof=aof, fsync=fsync)),
    )


def _product(target: Target, info: Info) -> tuple[_Product, tuple[int, ...]]:
    """Which server it is, and its version. Raises ServerUnfit for one that is too old."""
    product: _Product = "valkey" if "valkey_version" in info else "redis"
    number = info.get(f"{product}_version")
    if number is None:
        unfit(target, "it does not say which version it is", "is it a proxy? give the URL of the server behind it")
    version = tuple(int(part) for part in number.split(".") if part.isdecimal())
    if version < _MINIMUM[product]:
        remedy = "use Redis 7.0 or Valkey 8.0, or no --url for one of our own"
        unfit(target, f"{product.capitalize()} {number} is too old", remedy)
    return product, version


def _place(target: Target, info: Info, *, in_cluster: bool) -> str:
    """Its role: `master`. Raises ServerUnfit for a Sentinel, a replica, and one of a cluster that is named alone."""
    mode = info.get("redis_mode") or info.get("server_mode")
    if mode == "sentinel":
        unfit(target, "it is a Sentinel", "write sentinel://HOST:PORT/NAME, and it is asked for the primary")
    if not in_cluster and (mode == "cluster" or info.get("cluster_enabled") == "1"):
        unfit(target, "it is one of a cluster", "write redis+cluster://HOST:PORT")
    role = info.get("role", "master")
    if role != "master":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        unfit(target, f"it is a replica of {primary}, and read-only", "give the URL of its primary")
    return role


async def _probe(target: Target, key: str, commands: Sequence[str], wire: Wire) -> None:
    sha = await wire.call("SCRIPT", "LOAD", _PROBE)
    words = await wire.call("EVALSHA", sha, 1, key, *commands)
    denied = ", ".join(word.decode() for word in words)
    if denied:
        unfit(target, f"this user may not call {denied} on the keys evb:*", GRANT)


def _warnings(target: Target, *, aof: bool, fsync: str | None) -> list[str]:
    if not aof:
        return [f"{target.redacted}: the append-only file is off: what it has answered is lost when it dies"]
    if fsync == "no":
        return [f"{target.redacted}: appendfsync is no: a power loss takes the last half minute with it"]
    return []


async def _config(wire: Wire) -> Mapping[str, str]:
    """The settings that matter; nothing where CONFIG is denied or renamed, as hosted servers have it."""
    try:
        return hash_of(await wire.call("CONFIG", "GET", "maxmemory-policy", "appendfsync"))
    except ReplyError:
        return {}
