"""What can fail. `docs/chaos.md` has the same table, at length."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from bus.errors import InputError
from bus.nearest import nearest

__all__ = ["FAULTS_THAT_LOSE", "Fault", "World", "read_faults", "world_of"]


class Fault(StrEnum):
    """A fault, by the name that `--faults` takes."""

    KILL = "kill"
    """SIGKILL to a worker or scorer."""
    STOP = "stop"
    """SIGSTOP to one, until its leases have long run out; then it goes on as if nothing had been."""
    TERM = "term"
    """SIGTERM to one: it hands back what it holds."""
    KILL_PLANNER = "kill-planner"
    """SIGKILL to the planner."""
    KILL_AT_POINT = "kill-at-point"
    """SIGKILL by a process to itself, exactly between two steps: see `plan.POINTS`."""
    LATE_ACK = "late-ack"
    """The script that would end a lease comes when the lease is somebody else's."""
    LOSE_ANSWER = "lose-answer"
    """A script is applied and its answer lost: it is sent again."""
    LATE_DUPLICATE = "late-duplicate"
    """A script arrives once more, long after its answer."""
    CLOCK = "clock"
    """The clock of one process jumps, forth or back."""
    DISK_FULL = "disk-full"
    """A worker cannot write a byte to its disk for a while."""

    SERVER_KILL = "server-kill"
    """SIGKILL to the server, with `appendfsync everysec`, and a start on its data."""
    SERVER_KILL_ALWAYS = "server-kill-always"
    """The same with `appendfsync always`."""
    SERVER_LOSE_TAIL = "server-lose-tail"
    """The same, and the last writes of its file are gone: what a loss of power takes."""
    SCRIPT_FLUSH = "script-flush"
    """The server forgets all scripts."""
    MEMORY_FULL = "memory-full"
    """The server refuses all writes for a while."""
    SERVER_CLOCK = "server-clock"
    """The server's clock jumps by some lease times, forth or back, and a little later to where it belongs."""
    FAILOVER = "failover"
    """The primary is killed behind its Sentinels; a replica takes its place."""
    CLUSTER_FAILOVER = "cluster-failover"
    """The primary of the batch's slot is killed in its cluster; a replica takes its place."""

    CUT = "cut"
    """All connections are cut."""
    HALF_OPEN = "half-open"
    """Half of the connections go silent, without an end."""
    DELAY = "delay"
    """All that passes is late for a while."""
    DUPLICATE_REQUEST = "duplicate-request"
    """The network delivers some requests twice."""

    REDELIVER = "redeliver"
    """A message that somebody works on is given to the next who asks."""
    COPY_ENTRY = "copy-entry"
    """A message stands in its stream once more."""

    ENDPOINT = "endpoint"
    """The lab misbehaves: cut, late, refused, doubled or foreign answers, effects without an answer."""


class World(StrEnum):
    """What a batch runs on. Faults of one world may make nonsense of what another one promises."""

    SURE = "sure"
    """One server, that loses nothing which it has answered."""
    FORGETFUL = "forgetful"
    """One server, that may lose the last moments: spend and effects then have nobody who remembers them all.

    And whose clock may jump: then nobody can tell how long anything took.
    """
    REPLICATED = "replicated"
    """A primary, a replica and Sentinels: likewise."""
    CLUSTER = "cluster"
    """Three primaries with a replica each: likewise."""


FAULTS_THAT_LOSE = frozenset({Fault.SERVER_LOSE_TAIL, Fault.FAILOVER, Fault.CLUSTER_FAILOVER})
"""After these the books of the endpoint hold more than the history, and are not compared."""

_ON_ONE_SERVER = frozenset(
    {
        Fault.SERVER_KILL,
        Fault.SERVER_KILL_ALWAYS,
        Fault.SERVER_LOSE_TAIL,
        Fault.SERVER_CLOCK,
        Fault.CUT,
        Fault.HALF_OPEN,
        Fault.DELAY,
        Fault.DUPLICATE_REQUEST,
        Fault.MEMORY_FULL,
    }
)
"""They are done to the server that we started, or to the network before it; a set of servers has neither."""


def world_of(fault: Fault, world: World) -> bool:
    """Whether a fault can strike in a world."""
    match world:
        case World.SURE:
            return fault not in FAULTS_THAT_LOSE and fault is not Fault.SERVER_CLOCK
        case World.FORGETFUL:
            return fault not in (Fault.FAILOVER, Fault.CLUSTER_FAILOVER)
        case World.REPLICATED:
            return fault not in _ON_ONE_SERVER and fault is not Fault.CLUSTER_FAILOVER
        case World.CLUSTER:
            return fault not in _ON_ONE_SERVER and fault is not Fault.FAILOVER


def read_faults(written: str | None) -> tuple[Fault, ...]:
    """What `--faults` names: `kill,stop`, or `all` but some: `all,-failover`; None: all. Raises InputError."""
    chosen: set[Fault] = set()
    for word in (one.strip() for one in (written or "all").split(",")):
        name = word.removeprefix("-")
        named = set(Fault) if name == "all" else {_fault(name)}
        chosen = chosen - named if word.startswith("-") else chosen | named
    if not chosen:
        raise InputError(f"--faults {written}: no fault is left", remedy=f"choose of {_names(Fault)}")
    return tuple(fault for fault in Fault if fault in chosen)


def _fault(name: str) -> Fault:
    try:
        return Fault(name)
    except ValueError:
        near = nearest(name, list(Fault))
        remedy = f"did you mean {near}?" if near else f"there are all, {_names(Fault)}"
        raise InputError(f"--faults: {name!r} is no fault", remedy=remedy) from None


def _names(faults: Iterable[Fault]) -> str:
    return ", ".join(faults)
