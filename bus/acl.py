"""Server users, one a role and plane: what each may touch, as rules for the server's own access control.

The fences hold against a worker that is late, killed or confused. A worker with a bug, or one that runs code which
nobody has read, could still send any command. A user of its own ends that at the server: a shadow worker's user has no
right to any live key, whatever its process does.

Which keys a role touches is read from the headers of the scripts that it calls, so a rule cannot fall behind them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from importlib.resources import files

from bus.keys import any_shard, endpoint, registry
from bus.rights import ARCHIVING, COMMANDS, PRUNING, READING
from bus.types import Plane

__all__ = ["AclRole", "key_patterns", "rule", "steps_of", "user_name"]


class AclRole(StrEnum):
    """Who gets a user of its own."""

    PLANNER = "planner"
    WORKER = "worker"
    SCORER = "scorer"
    OPERATOR = "operator"
    """`evalbus run`, whose processes share its URL; `rescore`, `prune`: everything on the plane."""
    READER = "reader"
    """`evalbus status`, `gate`, `export`: reads everything on the plane, writes nothing."""


_STEPS: dict[AclRole, tuple[str, ...]] = {
    AclRole.PLANNER: (
        "admit", "adopt", "abandon", "requeue", "tool_requeue", "sweep", "rebind", "score_hole", "close",
        "archive_claim", "archive",
    ),
    AclRole.WORKER: (
        "claim", "append", "seal", "yield", "hole", "heartbeat", "open_call", "flush", "bind_call", "drop_call",
        "resolve", "write", "put_tools", "join", "turn", "tool_claim", "tool_sent", "tool_complete",
    ),
    AclRole.SCORER: (
        "score_claim", "score", "score_yield", "score_hole", "heartbeat", "open_judge", "bind_judge", "flush",
        "drop_call",
    ),
}  # fmt: skip
_ALL_ROLES = ("bury", "restarted")
"""Steps that every role takes: an unreadable message, a server that was restarted."""

_STREAMS: dict[AclRole, tuple[str, ...]] = {
    AclRole.PLANNER: ("results", "runs", "scores", "tools"),
    AclRole.WORKER: ("runs", "tools"),
    AclRole.SCORER: ("scores",),
}
"""What stands for `<stream>` in a header: those that a role reads, or puts a lost message back into."""

_READ_BESIDE: dict[AclRole, tuple[str, ...]] = {
    AclRole.PLANNER: ("bundle", "blob:*", "transcript:*"),
    AclRole.WORKER: ("transcript:*", "bundle"),
    AclRole.SCORER: ("transcript:*", "bundle"),
}
"""What a role reads without a script, after `evb:{<plane>.*}:b:*:`."""

_WRITTEN_BESIDE: dict[AclRole, tuple[str, ...]] = {
    AclRole.WORKER: ("blob:*", "loops"),
    AclRole.SCORER: ("blob:*",),
}
"""Sealed workspaces, and what a judge keeps: stored under their digest before the step that names them. And a worker
whose event loop is held says by whom: a remark, which no step reads."""

_CLOSING = (AclRole.PLANNER, AclRole.OPERATOR)
"""Who waits until a close would survive, and writes to a key for that (`bus.durability`)."""

_ASKING = (AclRole.WORKER, AclRole.SCORER)
"""Who asks models, and so takes from what all may ask of an endpoint together."""

_CONNECTING = (
    "auth",
    "hello",
    "select",
    "ping",
    "client|setname",
    "client|id",
    "client|unblock",
    "xread",
    "evalsha",
    "script|load",
    "script|exists",
    "cluster|info",
    "cluster|slots",
)
_WITH_SUBCOMMAND = {"xgroup": ("create",), "xinfo": ("groups", "consumers", "stream"), "info": ()}
_IN_HEADERS = registry(Plane.LIVE).removesuffix("batches")
_ANY_STREAM = "b:*:*"  # the tail of a key template that ends in <stream>
_KEY = re.compile(r"^\s+(?:KEYS\s+)?\d+…?\s+\w+\s+(evb:\{live\.0\}\S*)", re.MULTILINE)


def steps_of(role: AclRole) -> tuple[str, ...]:
    """The pipeline's steps, by their names in `lua/run`, that a role takes."""
    return (*_STEPS.get(role, ()), *_ALL_ROLES)


def user_name(role: AclRole, plane: Plane) -> str:
    """`evalbus-shadow-worker`."""
    return f"evalbus-{plane}-{role}"


def key_patterns(role: AclRole, plane: Plane) -> list[str]:
    """The server's key patterns for a role: `~` reads and writes, `%R~` reads. Each begins with the plane."""
    place = any_shard(plane)
    if role is AclRole.OPERATOR:
        return [f"~{place}*"]
    if role is AclRole.READER:
        return [f"%R~{place}*"]
    written = {f"~{place}{tail}" for step in steps_of(role) for tail in _tails(step) if tail != _ANY_STREAM}
    written |= {f"~{place}b:*:{stream}" for stream in _STREAMS[role]}
    written |= {f"~{place}b:*:{tail}" for tail in _WRITTEN_BESIDE.get(role, ())}
    if role in _ASKING:
        written.add(f"~{place}rests")
        written.add(f"~{place}{endpoint(plane, '*').removeprefix(registry(plane).removesuffix('batches'))}")
    if role in _CLOSING:
        written.add(f"~{place}mark")
    read = {f"%R~{place}b:*:{tail}" for tail in _READ_BESIDE[role]}
    read.add(f"%R~{place}bell")
    if role not in _ASKING:
        read.add(f"%R~{place}rests")
    # The registry: which batches there are. It is also the key on which a server is asked whether it is fit.
    return [f"~{place}batches", *sorted(written - {f"~{place}batches"}), *sorted(read)]


@cache
def _tails(step: str) -> frozenset[str]:
    """The keys in a script's header, after the plane and shard, with `*` for what varies."""
    source = files("lua").joinpath("run", f"{step}.lua").read_text("utf-8")
    header = source[: source.index("]]")]
    found = frozenset(re.sub(r"<[^>]*>", "*", key).removeprefix(_IN_HEADERS) for key in _KEY.findall(header))
    if not found:
        raise ValueError(f"run.{step}: its header names no key")
    return found


def _commands(role: AclRole) -> Sequence[str]:
    asked = READING if role is AclRole.READER else COMMANDS
    if role in _CLOSING:
        asked = (*asked, *ARCHIVING, "wait")
    if role is AclRole.OPERATOR:
        asked = (*asked, *PRUNING)
    names = sorted({line.split()[0] for line in asked})
    allowed = []
    for name in names:
        allowed += [f"{name}|{sub}" for sub in _WITH_SUBCOMMAND.get(name, ())] or [name]
    return [*_CONNECTING, *allowed]


def rule(role: AclRole, plane: Plane, password: str = "PASSWORD") -> str:  # noqa: S107 - a place to fill in
    """The words after `ACL SETUSER`: a user that may do what its role does on its plane, and nothing else.

    `-@all` first, then every command by name: the categories are too wide (`@write` holds FLUSHALL).
    """
    words = ["reset", "on", f">{password}", "resetchannels", "-@all"]
    words += [f"+{name}" for name in _commands(role)]
    words += key_patterns(role, plane)
    return " ".join([user_name(role, plane), *words])
