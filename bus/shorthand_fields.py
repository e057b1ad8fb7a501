"""What the writer of the short form knows of each field: its kind, whether it may be absent, what it mostly repeats.

The shapes themselves, which fields a command or a part has, are `bus.shorthand`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bus.shorthand import Shape

__all__ = [
    "LISTS",
    "NO_EVENTS",
    "NUMBERS",
    "OFTEN_BARE",
    "OPEN",
    "SAID_BY_ALL",
    "SELDOM",
    "Field",
    "fields_of",
    "likely",
]

NUMBERS = frozenset(
    {
        *("billed", "durable", "epoch", "gen", "length", "model_left", "ok"),
        *("remaining", "replays", "seq", "tokens", "ttl_ms", "watermark"),
    }
)
"""Fields of parts that are numbers or booleans. All others but `LISTS` are texts."""

LISTS = frozenset({"transcript.lease->unresolved", "join.admit.expected", "outbox.put.args"})

OPEN = frozenset({"outbox.claim", "outbox.complete"})
"""Parts that may have more arguments than their line: `effects.give_up` notes them so."""

SELDOM = frozenset({"head", "intent", "lease_id", "parent", "plane", "run"})
"""Texts of parts that may be absent. Where any other is, the entry is kept whole."""

OFTEN_BARE = frozenset({"transcript.append", "transcript.intend", "transcript.seal"})
"""Parts that are noted without arguments when the envelope has them all."""

NO_EVENTS, _CHAIN, _RESULT = "0", "run~0", "result"
SAID_BY_ALL = {NO_EVENTS: "NO_EVENTS", _CHAIN: "env.run .. '~0'", _RESULT: "env.plane .. ':' .. env.run .. ':result'"}
"""What an entry need not say, in the order of its numbers; the last two in an entry of a run."""

LIKE: Mapping[str, str] = {
    "admission": "executor admission lease",
    "args": "args",
    "body": "digest head",
    "candidate": "candidate",
    "case": "step",
    "digest": "digest intent head",
    "echo": "intent_id",
    "head": "head",
    "intent": "digest",
    "judge": "judge",
    "key": "intent_id",
    "lease": "desk_lease admission lease",
    "lease_id": "executor +lease_id",
    "parent": f"{NO_EVENTS} parent head",
    "plane.write.key": f"{_RESULT} intent_id",
    "result": "digest",
    "run": "run step",
    "slot": "slot",
    "state": "state",
    "step": "step run",
    "tool": "tool",
    "transcript.lease->head": NO_EVENTS,
    "transcript.lease.lease_id": "",
    "transcript.lease.run": _CHAIN,
    "verdict": "head",
    "window": "window",
}
"""By a field, or by a part's: the fields whose text it may repeat, the likeliest first. The envelope's, where it has
such a text, else the one that a part said last; always the part's behind a `+`."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a part: `path` is `<part>.<name>`, or `<part>-><name>` of its answer."""

    path: str
    name: str
    source: str

    @property
    def is_text(self) -> bool:
        """Neither a number nor a list."""
        return self.name not in NUMBERS and self.path not in LISTS


def fields_of(part: Shape) -> list[Field]:
    """A part's, in the order of its values."""
    args = [Field(f"{part.name}.{name}", name, f"args.{name}") for name in part.args]
    return args + [Field(f"{part.name}->{name}", name, f"answer.{name}") for name in part.answers]


def likely(path: str, name: str) -> list[str]:
    """Which earlier texts a field may repeat, in the order in which they are tried: see `LIKE`."""
    return LIKE.get(path, LIKE.get(name, "")).split()
