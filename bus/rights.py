"""The server's commands that each kind of work takes: what a user is asked for, and what one is given (`bus.acl`)."""

from __future__ import annotations

__all__ = ["ARCHIVING", "COMMANDS", "PRUNING", "READING"]

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
