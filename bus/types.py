"""The words that every part uses: identities, verbs, decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NewType

BatchId = NewType("BatchId", str)
RunId = NewType("RunId", str)
"""`<case>#<trial>`, the unit of work."""
LeaseId = NewType("LeaseId", str)
"""128 random bits in hex, drawn by the client that asks for the lease."""
Gen = NewType("Gen", int)
"""A fencing token: minted by the server, strictly increasing per run."""
EntryId = NewType("EntryId", str)
"""A stream entry's id, `<ms>-<n>`."""
ConsumerId = NewType("ConsumerId", str)
Digest = NewType("Digest", str)
"""SHA-256 in lower-case hex."""

MAX_INT = 2**53 - 1
"""The largest whole number that Lua, JSON and msgpack all carry exactly."""


class Plane(StrEnum):
    """Which world a batch writes to."""

    LIVE = "live"
    SHADOW = "shadow"


class Durability(StrEnum):
    """What must survive the loss of power, or of the primary, before it counts: see `bus.durability`."""

    RELAXED = "relaxed"
    STANDARD = "standard"
    STRICT = "strict"


class Verb(StrEnum):
    """What an operation decided."""

    COMMIT = "commit"
    """The effect was applied now."""
    DUPLICATE = "duplicate"
    """The very same operation was applied before; the earlier answer is returned."""
    REJECT = "reject"
    """Refused for good, reason named."""
    REPLAY = "replay"
    """Refused; the caller may try again under a fresh identity."""
    IN_DOUBT = "in_doubt"
    """Not decidable yet: neither repeat nor give up, recover later."""
    COMPENSATE = "compensate"
    """An effect may have escaped: run the named inverse."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of every operation. `by` names the fence and operation that decided, as `histogram.score`."""

    verb: Verb
    reason: str | None = None
    by: str = ""
    answer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def applied(self) -> bool:
        """True when the effect stands: applied now, or by an earlier sending of the same command."""
        return self.verb in (Verb.COMMIT, Verb.DUPLICATE)

    @property
    def refused(self) -> bool:
        """True for `reject` and `replay`: what the refusal counts count."""
        return self.verb in (Verb.REJECT, Verb.REPLAY)

    def __str__(self) -> str:
        """`reject stale_gen (transcript.append)`."""
        words = [self.verb.value] + ([self.reason] if self.reason else [])
        return " ".join(words) + (f" ({self.by})" if self.by else "")
