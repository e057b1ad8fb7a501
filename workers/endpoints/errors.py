"""What a request to an endpoint can end in, other than a reply.

EndpointError                 one line, with the endpoint's host and never its key
├── RateLimitedError          429: it said when to come back, or did not
├── OverloadedError           5xx, 529, or an error of that kind in the middle of the stream
├── CutError                  the connection ended before the answer did
├── SilentError               nothing came for too long; the connection was closed from here
├── RefusedAnswerError        the answer is whole, but is none: no identity, empty, a broken tool call, another protocol
├── BadRequestError           400, 413, 422: this request will never be taken
└── UnusableError             401, 403, 404, a redirect, no quota, or nobody listens there

Who calls decides what to do by three questions, which each error answers by itself: may a new attempt pass
(`may_pass`), did this one cost nothing for sure (`free`), and is the whole endpoint to be left in peace until then
(`retry_after`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from bus.errors import EvalbusError

__all__ = [
    "BadRequestError",
    "CutError",
    "EndpointError",
    "OverloadedError",
    "RateLimitedError",
    "Refusal",
    "RefusedAnswerError",
    "SilentError",
    "UnusableError",
    "Wait",
]

Wait = Literal["first_token", "idle", "total"]
"""The times of an `EndpointSpec` that can run out."""


class Refusal(StrEnum):
    """Why an answer that arrived is none."""

    CONTENT_TYPE = "content_type"
    """Neither an event stream nor JSON: a proxy's page, a login form."""
    NOT_A_STREAM = "not_a_stream"
    """JSON in one piece: the endpoint does not stream, so nothing of it could be billed while it came."""
    MALFORMED = "malformed"
    """An event that is no JSON object of the protocol, or no UTF-8."""
    TOO_LARGE = "too_large"
    NO_IDENTITY = "no_identity"
    """`id` or `model` is missing."""
    IDENTITY_CHANGED = "identity_changed"
    """Two `id`s or two `model`s in one stream: pieces of another answer."""
    NO_FINISH_REASON = "no_finish_reason"
    """It ended in good order without saying why the model stopped."""
    EMPTY_BODY = "empty_body"
    """No text and no tool call."""
    TRUNCATED_TOOL_CALL = "truncated_tool_call"
    """A tool call without a name, or whose arguments are no JSON object."""


class EndpointError(EvalbusError):
    """Base of all of them. `str(error)` is one line."""

    may_pass = True
    """Whether a new attempt at the same request may succeed."""
    free = False
    """True when the endpoint cannot have worked on the request: there is nothing to bill."""
    retry_after: float | None = None
    """Seconds for which the endpoint asks everyone to stay away; None when it does not say."""


class RateLimitedError(EndpointError):
    """Too many requests. Nothing was spent, unless it came in the middle of the stream."""

    def __init__(self, text: str, retry_after: float | None = None, *, free: bool = True) -> None:
        """`retry_after`: in seconds from now, from 0."""
        super().__init__(text)
        self.retry_after, self.free = retry_after, free


class OverloadedError(EndpointError):
    """The endpoint failed. Whether it had begun to spend is unknown."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        """`retry_after`: as for RateLimitedError."""
        super().__init__(text)
        self.retry_after = retry_after


class CutError(EndpointError):
    """The connection ended after `pieces` pieces, before the answer did."""

    def __init__(self, text: str, pieces: int) -> None:
        """`pieces` that were handed out count as delivered."""
        super().__init__(text)
        self.pieces = pieces


class SilentError(EndpointError):
    """A time ran out: which, and after how many pieces."""

    def __init__(self, text: str, which: Wait, pieces: int) -> None:
        """`which` of the spec's times it was."""
        super().__init__(text)
        self.which: Wait = which
        self.pieces = pieces


class RefusedAnswerError(EndpointError):
    """The answer is complete and cannot be used. It was paid for: see the stream's `usage`."""

    def __init__(self, text: str, reason: Refusal) -> None:
        """`reason`: one word for counters and events."""
        super().__init__(text)
        self.reason = reason


class BadRequestError(EndpointError):
    """The endpoint will never take this request: it is too long, or one of its parameters is wrong."""

    may_pass = False

    def __init__(self, text: str, *, free: bool = True) -> None:
        """`free`: False when it came in the middle of the stream."""
        super().__init__(text)
        self.free = free


class UnusableError(EndpointError):
    """The endpoint takes no request of ours: wrong key, no such model, nobody there."""

    def __init__(self, text: str, *, unreachable: bool = False, local: bool = False, free: bool = True) -> None:
        """`unreachable`: nobody took the connection, which may pass, as when a server is restarted.

        `local`: for this machine has no network, no resolver, no port: nobody else was asked.
        """
        super().__init__(text)
        self.local = local
        self.unreachable = self.may_pass = unreachable
        self.free = free
