"""The kinds of misbehaviour, and how one is written.

    cut                 at a place, or for a time, that the seed decides, where there is one
    cut@3               after three tokens
    late@500ms          half a second late
    429@5               five refusals in a row
    cut@3*2             the first two times that the same content is asked for; after that, none

A kind says which of the lab's interfaces can do it. All are things that real endpoints, and the proxies and
networks before them, have done.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from workers.quantities import duration

__all__ = ["Api", "Kind", "Mischief", "Takes", "parse"]


class Api(StrEnum):
    """The interfaces that misbehave. What counts and what tells the counts (`/counts`, `/billing`) never does."""

    MODEL = "model"
    TICKETS = "tickets"
    TOOLS = "tools"


class Takes(Enum):
    """What stands behind the `@` of a kind."""

    NOTHING = "nothing"
    TOKENS = "a number of tokens"
    TIMES = "a number of requests, from 1"
    TIME = "a duration"


class Kind(StrEnum):
    """What the lab can do wrong; the table in `docs/lab.md` says it at length."""

    DROP = "drop"
    """The connection dies before a byte of the answer; nothing was done and nothing is billed."""
    HANG = "hang"
    """Accepted, never answered; nothing is done. Only the client ends it."""
    LATE = "late"
    """Done, then the answer comes late (model: before the first token)."""
    RATE_LIMITED = "429"
    """This request and the next ones of the interface are refused, with `Retry-After`; nothing is done."""
    BROKEN = "500"
    """Refused, nothing is done."""
    OVERLOADED = "503"
    """Refused, nothing is done."""
    HTML = "html"
    """A proxy's page, with status 200; nothing is done."""
    EMPTY = "empty"
    """Status 200 and no body; a ticket is made, a model's prompt is billed."""

    CUT = "cut"
    """The connection dies after so many tokens."""
    STALL = "stall"
    """After so many tokens, silence, with the connection open."""
    UNTERMINATED = "unterminated"
    """All tokens, then a clean end of the body without finish, usage and terminator."""
    STUTTER = "stutter"
    """A pause before each token."""
    DUPLICATE = "duplicate"
    """The event of one token comes twice (model); the request is delivered twice (tickets)."""
    TWICE = "twice"
    """The whole answer comes a second time in the same response. It is billed once."""
    WRONG_MODEL = "wrong-model"
    """The answer says that another model gave it."""
    NO_IDENTITY = "no-identity"
    """The answer has no `model`, no `id` and no `system_fingerprint`."""
    BLANK = "blank"
    """A well-formed answer without any content."""
    BAD_CALL = "bad-call"
    """A tool call whose arguments are cut JSON, and a finish as if they were whole. Needs offered tools or a call."""

    MISSING_ECHO = "missing-echo"
    """Done, 2xx, but the `Idempotency-Key` is not echoed."""
    WRONG_ECHO = "wrong-echo"
    """Done, 2xx, but another request's key is echoed."""
    COMMIT_THEN_CUT = "commit-then-cut"
    """Done, and the connection dies before a byte of the answer."""
    COMMIT_THEN_500 = "commit-then-500"
    """Done, and answered with an error."""
    SLOW_COMMIT = "slow-commit"
    """Done only after a time, also when the client has left by then."""
    CLIENT_LEFT = "client-left"
    """Done only when the client has left, at the latest after the given time."""
    FORGET = "forget"
    """The key is not remembered: a repeat makes another ticket. What an API without idempotency does."""

    @property
    def apis(self) -> frozenset[Api]:
        """Which interfaces can do it."""
        return _APIS.get(self, frozenset(Api))

    @property
    def takes(self) -> Takes:
        """What can stand behind its `@`."""
        return _TAKES.get(self, Takes.NOTHING)

    @property
    def default(self) -> float | None:
        """The value when none is given; None: the seed decides, or there is no value."""
        return _DEFAULTS.get(self)


_MODEL_ONLY: Final = frozenset({Api.MODEL})
_TICKETS_ONLY: Final = frozenset({Api.TICKETS})
_APIS: Final[dict[Kind, frozenset[Api]]] = {
    **dict.fromkeys(
        (
            Kind.CUT,
            Kind.STALL,
            Kind.UNTERMINATED,
            Kind.STUTTER,
            Kind.TWICE,
            Kind.WRONG_MODEL,
            Kind.NO_IDENTITY,
            Kind.BLANK,
            Kind.BAD_CALL,
        ),
        _MODEL_ONLY,
    ),
    **dict.fromkeys(
        (
            Kind.MISSING_ECHO,
            Kind.WRONG_ECHO,
            Kind.COMMIT_THEN_CUT,
            Kind.COMMIT_THEN_500,
            Kind.SLOW_COMMIT,
            Kind.CLIENT_LEFT,
            Kind.FORGET,
        ),
        _TICKETS_ONLY,
    ),
    Kind.DUPLICATE: frozenset({Api.MODEL, Api.TICKETS}),
}
_TAKES: Final = {
    Kind.CUT: Takes.TOKENS,
    Kind.STALL: Takes.TOKENS,
    Kind.DUPLICATE: Takes.TOKENS,
    Kind.RATE_LIMITED: Takes.TIMES,
    Kind.LATE: Takes.TIME,
    Kind.STUTTER: Takes.TIME,
    Kind.SLOW_COMMIT: Takes.TIME,
    Kind.CLIENT_LEFT: Takes.TIME,
}
_DEFAULTS: Final = {
    Kind.RATE_LIMITED: 3.0,
    Kind.LATE: 1.0,
    Kind.STUTTER: 0.05,
    Kind.SLOW_COMMIT: 1.0,
    Kind.CLIENT_LEFT: 60.0,
}


@dataclass(frozen=True, slots=True)
class Mischief:
    """One misbehaviour, decided."""

    kind: Kind
    at: float | None = None
    """Tokens, requests or seconds, as the kind takes."""
    times: int | None = None
    """How often the same content meets it; None: always."""
    share: float = 0.5
    """In [0, 1): where in an answer it happens when `at` does not say."""

    @property
    def seconds(self) -> float:
        """Of a kind that takes a time."""
        return self.at if self.at is not None else self.kind.default or 0.0

    @property
    def row(self) -> int:
        """How many requests in a row are refused."""
        return max(1, int(self.at if self.at is not None else self.kind.default or 1))

    def place(self, tokens: int) -> int:
        """After how many of so many tokens, from 0 to all of them."""
        return min(tokens, int(self.at)) if self.at is not None else int(self.share * (tokens + 1))


_WRITTEN: Final = re.compile(r"([a-z0-9_-]+)(?:@([A-Za-z0-9.]+))?(?:\*(\d{1,6}))?", re.ASCII)


def parse(written: str) -> Mischief | None:
    """What `kind[@value][*times]` says, None of `none`; raises `ValueError` with one sentence."""
    match = _WRITTEN.fullmatch(written.strip())
    if match is None:
        raise ValueError(f"{written!r} is not a mischief (write it as cut, cut@3 or cut@3*2)")
    name, value, times = match[1].replace("_", "-"), match[2], match[3]
    if name == "none" and value is None and times is None:
        return None
    try:
        kind = Kind(name)
    except ValueError:
        raise ValueError(f"{name!r} is not a kind of mischief (there are: {', '.join(Kind)})") from None
    return Mischief(kind, None if value is None else _value(kind, value), None if times is None else int(times))


def _value(kind: Kind, written: str) -> float:
    match kind.takes:
        case Takes.TOKENS | Takes.TIMES:
            lowest = 1 if kind.takes is Takes.TIMES else 0
            if re.fullmatch(r"\d{1,6}", written, re.ASCII) and int(written) >= lowest:
                return int(written)
        case Takes.TIME:
            return duration(float(written) if re.fullmatch(r"\d+(\.\d+)?", written, re.ASCII) else written)
        case Takes.NOTHING:
            pass
    raise ValueError(f"{kind}@{written} is not a mischief: {kind} takes {kind.takes.value}")
