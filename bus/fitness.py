"""Whether a server can carry a batch, found out before anything is spent.

A fence that a server may forget is none. So a server that may evict keys, that is a replica, that is too old
for the scripts, or that would refuse half of the commands, is refused here, in one line that says what to
change. Reading settings is not enough: a short script asks the server itself, with this very user, and it is
refused up front exactly when a writing script would be (full memory, read-only, a disk that cannot be
written), without writing anything.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NoReturn

from bus.errors import ReplyError, ServerUnfit, ServerUnreachable
from bus.info import Info, parse_info
from bus.keys import registry
from bus.replies import hash_of
from bus.sentinel import located
from bus.target import Target
from bus.topology import Topology
from bus.types import Plane
from bus.wire import Wire

__all__ = ["ARCHIVING", "COMMANDS", "PRUNING", "READING", "ServerFacts", "check_fit"]

_SILENCE = 5.0  # seconds for connecting, and again for all answers together
_LOADING = 10.0  # seconds to wait for a server that is reading its data
_GRANT = "give it the rights with ACL SETUSER"
_MINIMUM = {"redis": (7, 0), "valkey": (8, 0)}

COMMANDS = (
    "exists KEY",
    "get KEY",
    "set KEY v",
    "hdel KEY f",
    "hget KEY f",
    "hgetall KEY",
    "hincrby KEY f 1",
    "hmget KEY f",
    "hset KEY f v",
    "lindex KEY 0",
    "lrange KEY 0 -1",
    "ltrim KEY 0 -1",
    "rpush KEY v",
    "sadd KEY v",
    "scard KEY",
    "sismember KEY v",
    "smembers KEY",
    "srem KEY v",
    "info server",
    "time",
    "xack KEY g 0-1",
    "xadd KEY * f v",
    "xautoclaim KEY g c 0 0",
    "xclaim KEY g c 0 0-1",
    "xdel KEY 0-1",
    "xgroup create KEY g 0 mkstream",
    "xinfo groups KEY",
    "xpending KEY g",
    "xrange KEY - +",
    "xreadgroup group g c streams KEY >",
)
"""What scripts and clients call, in a form that the server can check against the user's rights."""

PRUNING = ("scan 0", "unlink KEY", "xrevrange KEY + - COUNT 1")
"""What it takes beside them to remove a batch. SCAN gives out the names of all keys, so only an operator has it."""

ARCHIVING = ("xlen KEY", "xtrim KEY MINID 0-1")
"""What it takes beside them to archive a history while its batch runs: the planner's, and an operator's."""

_READS = {
    "exists", "get", "hget", "hgetall", "hmget", "info", "lindex", "lrange", "scard", "sismember", "smembers", "time",
    "xpending", "xrange",
}  # fmt: skip
READING = tuple(line for line in COMMANDS if line.split()[0] in _READS)
"""Those of them that write nothing: what it takes to look."""

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


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A fit server, as it described itself."""

    product: Literal["redis", "valkey"]
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
    if target.cluster is None:
        return await _check_one(await located(target), plane, commands, shards=None, may_evict=may_evict)
    primaries = await Topology(target).primaries(plane)
    found = [await _check_one(one.target, plane, commands, shards=one.shards, may_evict=may_evict) for one in primaries]
    return replace(found[0], warnings=tuple(line for one in found for line in one.warnings))


async def _check_one(
    target: Target, plane: Plane, commands: Sequence[str], *, shards: Sequence[int] | None, may_evict: bool
) -> ServerFacts:
    """`shards`: those that a primary of a cluster has; None for a single server."""
    address = target.address()
    try:
        async with asyncio.timeout(_SILENCE):
            wire = await Wire.open(address)
    except (ServerUnreachable, TimeoutError) as error:
        _unreachable(target, error, _hint(target))
    except ServerUnfit as error:
        cause = error.__cause__
        _refused(target, cause if isinstance(cause, ReplyError) else ReplyError(str(error)))
    try:
        info = await _loaded(target, wire)
        async with asyncio.timeout(_SILENCE):
            return await _examine(target, plane, commands, wire, info, shards, may_evict=may_evict)
    except (ServerUnreachable, TimeoutError) as error:
        _unreachable(target, error)
    except ReplyError as error:
        _refused(target, error)
    finally:
        wire.close()


async def _loaded(target: Target, wire: Wire) -> Info:
    deadline = asyncio.get_running_loop().time() + _LOADING
    while True:
        async with asyncio.timeout(_SILENCE):
            info = parse_info(await wire.call("INFO"))
        if info.get("loading", "0") == "0":
            return info
        if asyncio.get_running_loop().time() > deadline:
            raise ServerUnreachable(f"it has been loading its data for {_LOADING:.0f} s (try again later)")
        await asyncio.sleep(0.05)


async def _examine(
    target: Target,
    plane: Plane,
    commands: Sequence[str],
    wire: Wire,
    info: Info,
    shards: Sequence[int] | None,
    *,
    may_evict: bool,
) -> ServerFacts:
    product: Literal["redis", "valkey"] = "valkey" if "valkey_version" in info else "redis"
    number = info.get(f"{product}_version")
    if number is None:
        _unfit(target, "it does not say which version it is", "is it a proxy? give the URL of the server behind it")
    version = tuple(int(part) for part in number.split(".") if part.isdecimal())
    title = f"{product.capitalize()} {number}"
    mode = info.get("redis_mode") or info.get("server_mode")
    if version < _MINIMUM[product]:
        _unfit(target, f"{title} is too old", "use Redis 7.0 or Valkey 8.0, or no --url for one of our own")
    if mode == "sentinel":
        _unfit(target, "it is a Sentinel", "write sentinel://HOST:PORT/NAME, and it is asked for the primary")
    if shards is None and (mode == "cluster" or info.get("cluster_enabled") == "1"):
        _unfit(target, "it is one of a cluster", "write redis+cluster://HOST:PORT")
    role = info.get("role", "master")
    if role != "master":
        primary = f"{info.get('master_host')}:{info.get('master_port')}"
        _unfit(target, f"it is a replica of {primary}, and read-only", "give the URL of its primary")

    config = await _config(wire)
    policy = config.get("maxmemory-policy") or info.get("maxmemory_policy", "not known")
    if policy != "noeviction" and not may_evict:
        remedy = "CONFIG SET maxmemory-policy noeviction"
        _unfit(target, f"its maxmemory-policy is {policy}: it may drop keys that the fences rest on", remedy)
    at = [0] if shards is None else shards
    if commands and at:
        await _probe(target, registry(plane, at[0]), commands, wire)
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


async def _probe(target: Target, key: str, commands: Sequence[str], wire: Wire) -> None:
    sha = await wire.call("SCRIPT", "LOAD", _PROBE)
    words = await wire.call("EVALSHA", sha, 1, key, *commands)
    denied = ", ".join(word.decode() for word in words)
    if denied:
        _unfit(target, f"this user may not call {denied} on the keys evb:*", _GRANT)


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


def _unfit(target: Target, problem: str, remedy: str) -> NoReturn:
    raise ServerUnfit(f"{target.redacted}: {problem} ({remedy})")


def _refused(target: Target, error: ReplyError) -> NoReturn:
    """An error reply, told with what to do about it."""
    text = str(error)
    problems = {
        "NOAUTH": ("it wants a password", "write redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST"),
        "WRONGPASS": ("wrong user or password", "look up what the server expects; encode special characters"),
        "NOPERM": (f"this user has too few rights: {text}", _GRANT),
        "DENIED": ("it is in protected mode, for its own machine only", "set a password on it"),
        "READONLY": ("it is read-only", "give the URL of the primary"),
        "MASTERDOWN": ("it is a replica that lost its primary", "give the URL of the primary"),
        "OOM": ("its memory is full", "raise maxmemory, or remove data"),
        "MISCONF": ("it refuses writes: its snapshots cannot be written to disk", "see its log; make room"),
        "NOREPLICAS": ("it refuses writes: too few replicas are connected", "see min-replicas-to-write"),
    }
    if "called without any password configured" in text:
        _unfit(target, "it has no password, and one was given", "leave the password out of the URL")
    if "DB index" in text:
        _unfit(target, f"it has no database {target.db}", "leave the number out of the URL")
    if error.code in problems:
        problem, remedy = problems[error.code]
        _unfit(target, problem, remedy)
    _unfit(target, f"it answered {text!r}", "is it a Redis or a Valkey?")


def _hint(target: Target) -> str:
    """What may be wrong when a server hangs up or says nothing: with TLS and without, either side may."""
    if target.host is None:
        return ""
    return " (is TLS spoken there? redis:// is without)" if target.tls else " (if it wants TLS, write rediss://)"


def _unreachable(target: Target, error: BaseException, hint: str = "") -> NoReturn:
    cause = error if isinstance(error, TimeoutError) else error.__cause__ or error
    silent = isinstance(cause, ServerUnreachable | TimeoutError)
    raise ServerUnreachable(f"{target.redacted}: {_why(cause)}{hint if silent else ''}") from error


def _why(error: BaseException) -> str:
    """The reason in words, of an error of the system."""
    text = str(error)
    match error:
        case TimeoutError():
            return f"no answer within {_SILENCE:.0f} s"
        case FileNotFoundError():
            return "there is no such socket"
        case PermissionError():
            return "you may not use this socket"
        case socket.gaierror():
            return "the name of the host is not known"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted, {error.verify_message} (add ?ssl_ca_certs=FILE)"
        case ssl.SSLError():
            return "TLS is not spoken there (redis:// is the plain form)"
        case OSError() if error.errno == errno.ECONNREFUSED or f"Errno {errno.ECONNREFUSED}" in text:
            # of a name with several addresses, the errors are in the text only
            return "connection refused: no server listens there"
        case _:
            return text
