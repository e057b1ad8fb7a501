"""Judge one server by its vitals: each rule is a function of them, and says what to do."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence

from rich.filesize import decimal as byte_text

from workers.checkup.findings import Finding, Level
from workers.checkup.vitals import Vitals

__all__ = ["BYTES_PER_CALL", "BYTES_PER_RUN", "judge_server"]

BYTES_PER_RUN = 2_200
"""What a finished run that calls nothing holds, history included. `evalbus bench` measures 2,171 to 2,192, with short
names. On top come longer ones, which are in it several times, and what a run itself says: its events and its answer. So
it is the least, and no mean: the room is told for runs with a call too."""

BYTES_PER_CALL = 2_300
"""What a call adds, without its answer's own bytes: 2,310 of a model with 64 chunks, 1,820 of a tool with effects
(`evalbus bench --kind noop,model,fanout`)."""

_NEARLY_FULL = 0.8  # of the memory: what comes next may not fit
_FRAGMENTED = 1.5  # resident to used, where it comes to something
_FAR_OFF = 5.0  # seconds by which clocks differ
_SLOW = 0.020  # seconds a round trip: still fine with enough runs at a time
_CLIENTS = 0.8  # of the connections that the server takes
_LAGGING = 10  # seconds since a replica was last heard
_SOME = 64 * 2**20  # bytes below which no share means anything


def judge_server(vitals: Vitals) -> list[Finding]:
    """What there is to say, question by question, in the order in which it is printed."""
    return [finding for rule in _RULES for finding in rule(vitals)]


def _version(vitals: Vitals) -> Iterator[Finding]:
    # Which versions are too old is for bus.fitness to refuse.
    valkey = vitals.info.get("valkey_version")
    name = f"Valkey {valkey}" if valkey else f"Redis {vitals.info.get('redis_version', '')}"
    yield Finding("version", Level.OK, name)


def _persistence(vitals: Vitals) -> Iterator[Finding]:
    ask = "append-only file"
    if vitals.info.get("aof_enabled") != "1":
        yield Finding(ask, Level.WARNING, "off: what the server has answered is lost when it dies",
                      "CONFIG SET appendonly yes, and in its configuration file")  # fmt: skip
    elif (fsync := vitals.setting("appendfsync")) == "no":
        yield Finding(ask, Level.WARNING, "on, fsync no: a power loss takes the last half minute with it",
                      "CONFIG SET appendfsync everysec")  # fmt: skip
    else:
        yield Finding(ask, Level.OK, f"on, fsync {fsync or 'not known: this user may not read the configuration'}")
    for field, what in (("aof_last_write_status", "write to it"), ("aof_last_bgrewrite_status", "rewrite of it")):
        if vitals.info.get(field, "ok") != "ok":
            yield Finding(ask, Level.WARNING, f"the last {what} failed", "see the server's log; make room on its disk")
    if vitals.info.get("rdb_last_bgsave_status", "ok") != "ok":
        stops = vitals.setting("stop-writes-on-bgsave-error") != "no"
        yield Finding("snapshot file", Level.PROBLEM if stops else Level.WARNING,
                      f"the last one failed{', and the server refuses writes until one succeeds' if stops else ''}",
                      "see the server's log; make room on its disk")  # fmt: skip


def _eviction(vitals: Vitals) -> Iterator[Finding]:
    policy = vitals.setting("maxmemory-policy") or vitals.info.get("maxmemory_policy")
    if policy is None:
        yield Finding("eviction", Level.UNKNOWN, "the server does not say")
    elif policy == "noeviction":
        yield Finding("eviction", Level.OK, "none: noeviction")
    else:
        yield Finding("eviction", Level.PROBLEM, f"{policy}: it may drop keys that the fences rest on",
                      "CONFIG SET maxmemory-policy noeviction")  # fmt: skip


def _memory(vitals: Vitals) -> Iterator[Finding]:
    used, limit = vitals.number("used_memory"), vitals.number("maxmemory")
    total = vitals.number("total_system_memory")
    if used is None:
        yield Finding("memory", Level.UNKNOWN, "the server does not say")
        return
    bound, whose = (limit, "maxmemory") if limit else (total, "the machine's memory")
    if not bound:
        yield Finding("memory", Level.UNKNOWN, f"{byte_text(used)} used; no limit, and the machine's is not known")
        return
    room = max(bound - used, 0)
    answer = (
        f"{byte_text(used)} used of {byte_text(bound)} ({whose}): room for {_about(room // BYTES_PER_RUN)} runs "
        f"that call nothing, {_about(room // (BYTES_PER_RUN + BYTES_PER_CALL))} with a call each"
    )
    if used > _NEARLY_FULL * bound:
        remedy = "raise maxmemory, or evalbus prune batches that are over"
        yield Finding("memory", Level.WARNING, answer, remedy)
    else:
        yield Finding("memory", Level.OK, answer)
    resident = vitals.number("used_memory_rss") or 0
    if used > _SOME and resident > _FRAGMENTED * used:
        yield Finding("memory", Level.WARNING, f"fragmented: {byte_text(resident)} resident for {byte_text(used)} used",
                      "CONFIG SET activedefrag yes, or restart it at a quiet time")  # fmt: skip


def _about(count: int) -> str:
    """Two digits of it: more are not known."""
    return f"{count // (unit := 10 ** max(0, len(str(count)) - 2)) * unit:,}"


def _allocator(vitals: Vitals) -> Iterator[Finding]:
    # No warning: a server with either of them is fit.
    ask, name = "allocator", vitals.allocator
    if name is None:
        yield Finding(ask, Level.UNKNOWN, "the server does not say")
    elif name.startswith("libc"):
        yield Finding(ask, Level.OK, "libc's malloc: with glibc's, a run takes some 20% more of the server's time",
                      "jemalloc: as in the image valkey/valkey and in distributions' packages; for the private server "
                      "set LD_PRELOAD to libjemalloc.so.2")  # fmt: skip
    else:
        yield Finding(ask, Level.OK, name)


def _replication(vitals: Vitals) -> Iterator[Finding]:
    replicas = vitals.number("connected_slaves") or 0
    wanted = int(vitals.setting("min-replicas-to-write") or 0)
    if replicas < wanted:
        yield Finding("replication", Level.PROBLEM, f"{replicas} replicas, and it refuses writes below {wanted}",
                      "start the replicas, or lower min-replicas-to-write")  # fmt: skip
        return
    if not replicas:
        yield Finding("replication", Level.OK, "no replica: what is on its disk is all there is")
        return
    states = [_replica(vitals.info.get(f"slave{number}", "")) for number in range(replicas)]
    behind = [one for one in states if one.get("state") != "online" or int(one.get("lag", 0)) > _LAGGING]
    if behind:
        yield Finding("replication", Level.WARNING, f"{len(behind)} of {replicas} replicas lag or are not in step",
                      "see INFO replication and the replicas' logs: a failover would lose what they lack")  # fmt: skip
    else:
        yield Finding("replication", Level.OK, f"{replicas} replica{'s' * (replicas > 1)}, in step")


def _replica(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _user(vitals: Vitals) -> Iterator[Finding]:
    if vitals.user is None:
        yield Finding("user", Level.UNKNOWN, "who we are there is not for us to ask")
        return
    if vitals.passwordless and _is_remote(vitals):
        yield Finding("user", Level.WARNING, f"{vitals.user}, without a password: whoever reaches it may do everything",
                      "give it users: evalbus doctor --acl prints them")  # fmt: skip
    else:
        yield Finding("user", Level.OK, vitals.user)


def _transport(vitals: Vitals) -> Iterator[Finding]:
    target = vitals.target
    if target.tls:
        yield Finding("transport", Level.OK, "TLS")
    elif _is_remote(vitals):
        yield Finding("transport", Level.WARNING, "plain TCP: passwords and transcripts travel as they are",
                      "write rediss://, unless the network itself is closed or encrypted")  # fmt: skip
    else:
        yield Finding("transport", Level.OK, "unix socket" if target.host is None else "plain TCP on loopback")


def _is_remote(vitals: Vitals) -> bool:
    host = vitals.target.host
    if host is None or host == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def _clock(vitals: Vitals) -> Iterator[Finding]:
    ahead = vitals.clock_ahead
    answer = f"{abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this machine's"
    if abs(ahead) > _FAR_OFF:
        # Leases go by the server's clock alone, so this harms nothing but whoever compares times.
        yield Finding("clock", Level.WARNING, f"{answer}: leases are safe, but log lines will not match the history",
                      "run a time service on both")  # fmt: skip
    else:
        yield Finding("clock", Level.OK, answer)


def _scripts(vitals: Vitals) -> Iterator[Finding]:
    if vitals.broken_scripts:
        name, why = next(iter(vitals.broken_scripts.items()))
        answer = f"{len(vitals.broken_scripts)} of {vitals.scripts} refused: {name}: {why}"
        yield Finding("scripts", Level.PROBLEM, answer,
                      "allow script|load and evalsha, or use Redis 7.0 / Valkey 8.0 or newer")  # fmt: skip
        return
    limit = vitals.setting("busy-reply-threshold") or vitals.setting("lua-time-limit")
    yield Finding("scripts", Level.OK, f"all {vitals.scripts} compile{f'; busy after {limit} ms' if limit else ''}")


def _latency(vitals: Vitals) -> Iterator[Finding]:
    answer = f"{vitals.round_trip * 1e3:.2f} ms a round trip, 99th percentile {vitals.slow_trip * 1e3:.2f} ms"
    if vitals.round_trip > _SLOW:
        remedy = "put workers near the server, or give each more runs at a time: a run waits for a dozen of them"
        yield Finding("latency", Level.WARNING, answer, remedy)
    else:
        yield Finding("latency", Level.OK, answer)


def _connections(vitals: Vitals) -> Iterator[Finding]:
    clients = vitals.number("connected_clients")
    limit = vitals.number("maxclients") or int(vitals.setting("maxclients") or 0)
    if clients is None or not limit:
        yield Finding("connections", Level.UNKNOWN, "the server does not say how many it takes")
    elif clients > _CLIENTS * limit:
        yield Finding("connections", Level.WARNING, f"{clients:,} of {limit:,} in use",
                      "CONFIG SET maxclients, and its limit of open files")  # fmt: skip
    else:
        yield Finding("connections", Level.OK, f"{clients:,} of {limit:,} in use")
    idle = int(vitals.setting("timeout") or 0)
    if idle:
        yield Finding("connections", Level.WARNING, f"the server closes those that are idle for {idle} s",
                      "CONFIG SET timeout 0: a worker between two batches is idle")  # fmt: skip


_RULES: Sequence[Callable[[Vitals], Iterator[Finding]]] = (
    _version, _persistence, _eviction, _memory, _allocator, _replication, _user, _transport, _clock, _scripts, _latency,
    _connections,
)  # fmt: skip
