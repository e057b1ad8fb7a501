"""What went wrong, as an error of one line that does not hold the key.

A server may send back whatever it was sent: its message is cut, freed of control characters, and searched for the key
in each spelling that a message may give it, before anyone can see it.
"""

from __future__ import annotations

import errno
import html
import json
import os
import re
import socket
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import quote, quote_plus

from workers.endpoints.errors import (
    BadRequestError,
    CutError,
    EndpointError,
    OverloadedError,
    RateLimitedError,
    Refusal,
    RefusedAnswerError,
    SilentError,
    UnusableError,
    Wait,
)
from workers.endpoints.values import EndpointSpec

__all__ = ["MAX_ERROR_BODY", "Failures", "retry_after"]

MAX_ERROR_BODY = 64 * 1024
"""Bytes of an error's body that are read."""
_MAX_MESSAGE = 200
_LOCAL = frozenset(
    {errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
)
_NO_RESOLVER = frozenset({socket.EAI_AGAIN, socket.EAI_MEMORY, socket.EAI_SYSTEM})
"""Why there is no connection, when nobody but this machine was asked."""
_MAX_PAUSE = 3600.0
"""Seconds: no header of a server's may stop a fleet for longer than that at a time."""

_BAD_REQUEST = range(400, 500)
_NOT_FOUND = 404
_UNUSABLE = (401, 402, 403, _NOT_FOUND)
_NOT_NOW = (408, 409, 425)
"""Of the 4xx, those that say nothing about the request: a time ran out, a lock, too early."""
_RATE_LIMITED = 429
_SERVER_ERROR = 500
_NO_QUOTA = "insufficient_quota"

_KINDS = {
    "rate_limit_error": _RATE_LIMITED,
    "rate_limit_exceeded": _RATE_LIMITED,
    _NO_QUOTA: 402,
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "context_length_exceeded": 400,
    "request_too_large": 413,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": _NOT_FOUND,
}
"""What an error in a stream calls itself, as the status that it would have had; any other is the server's fault."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from now that the header names, by number or by date; None when it names none that can be read.

    A date is compared with the server's own, where it tells that: our clock may differ.
    """
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?", text):
        return min(float(text), _MAX_PAUSE)
    until, now = _http_date(text), _http_date(headers.get("date", ""))
    if until is None:
        return None
    return min(max(until - (time.time() if now is None else now), 0.0), _MAX_PAUSE)


def _http_date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


class Failures:
    """Makes the errors of one endpoint."""

    def __init__(self, spec: EndpointSpec, where: str, not_found: str = "") -> None:
        """`where`: what the errors call the endpoint; no secret. `not_found`: what may be the matter when it is 404."""
        self._where, self._not_found = where, not_found
        self._key = spec.key

    def of_status(self, status: int, headers: Mapping[str, str], body: bytes) -> EndpointError:
        """A response that is no success."""
        if 300 <= status < 400:  # noqa: PLR2004 (the redirects)
            goal = self._clean(headers.get("location", "another place").partition("?")[0])
            return UnusableError(self._line(f"answers {status}, a redirect to {goal}; redirects are not followed"))
        message, kind = self._message(body)
        if status == _RATE_LIMITED and kind == _NO_QUOTA:
            return UnusableError(self._line(f"{status}: {message}"))
        told = f"{status}: {message}" if message else str(status)
        if status == _NOT_FOUND and self._not_found:
            told = f"{told} ({self._not_found})"
        return self._of(status, told, retry_after(headers), free=True)

    def of_json(self, body: bytes) -> EndpointError:
        """JSON in one piece where a stream was asked for: an error, or the answer of an endpoint that cannot stream."""
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict) and found.get("error"):
            return self.of_event(found["error"], started=False)
        return self.refused(Refusal.NOT_A_STREAM, "an answer in one piece where a stream was asked for")

    def of_event(self, error: object, *, started: bool = True) -> EndpointError:
        """An error object in the place of an event, or of the whole answer: `started`, tokens may have been spent."""
        message, kind = self._told(error)
        status = error.get("code", error.get("status")) if isinstance(error, dict) else None
        if isinstance(status, str) and re.fullmatch("[0-9]{3}", status):
            status = int(status)
        if isinstance(status, bool) or not isinstance(status, int) or status not in range(400, 600):
            status = _KINDS.get(kind, _SERVER_ERROR)
        return self._of(status, f"an error in the answer: {message or kind or 'not described'}", None, free=not started)

    def _of(self, status: int, text: str, pause: float | None, *, free: bool) -> EndpointError:
        line = self._line(text)
        if status == _RATE_LIMITED:
            return RateLimitedError(line, pause, free=free)
        if status in _UNUSABLE:
            return UnusableError(line, free=free)
        if status in _BAD_REQUEST and status not in _NOT_NOW:
            return BadRequestError(line, free=free)
        return OverloadedError(line, pause)

    def of_transport(self, error: Exception, pieces: int) -> EndpointError:
        """What the client library raised."""
        import aiohttp  # noqa: PLC0415 - see `Client`
        from aiohttp.http_exceptions import ContentEncodingError  # noqa: PLC0415

        told = self._clean(str(error)) or type(error).__name__
        match error:
            case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | aiohttp.ClientHttpProxyError():
                cause = getattr(error, "os_error", None)
                line = self._line(f"cannot be reached: {_why(error) or told}")
                return UnusableError(line, unreachable=True, local=_is_local(cause))
            case aiohttp.ClientPayloadError() if isinstance(error.__cause__, ContentEncodingError):
                return self.refused(Refusal.MALFORMED, f"cannot be decompressed: {self._clean(str(error.__cause__))}")
        return self.cut(told, pieces)

    def cut(self, told: str, pieces: int) -> CutError:
        """The answer has no end."""
        return CutError(self._line(f"the answer was cut after {pieces} pieces: {told}"), pieces)

    def silent(self, which: Wait, seconds: float, pieces: int) -> SilentError:
        """A time ran out."""
        told = {
            "first_token": f"no first token within {seconds:g} s",
            "idle": f"nothing more for {seconds:g} s after {pieces} pieces",
            "total": f"not finished within {seconds:g} s, after {pieces} pieces",
        }
        return SilentError(self._line(told[which]), which, pieces)

    def refused(self, reason: Refusal, told: str) -> RefusedAnswerError:
        """An answer that is none."""
        return RefusedAnswerError(self._line(self._clean(f"{reason}: {told}")), reason)

    def _line(self, text: str) -> str:
        return f"{self._where}: {text}"

    def _message(self, body: bytes) -> tuple[str, str]:
        text = body[:MAX_ERROR_BODY].decode("utf-8", "replace")
        if len(body) >= MAX_ERROR_BODY:  # the key may stand across the cut
            text = text[: -max(len(self._key), 1)]
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            # Before the tags go too: a key that holds < and > would lose what is between them, and not be found.
            return self._clean(re.sub(r"(?is)<(script|style).*?</\1>|<[^>]*>", " ", self._scrub(text))), ""
        return self._told(found.get("error", found) if isinstance(found, dict) else found)

    def _told(self, error: object) -> tuple[str, str]:
        """An error object's message and what it calls itself, from the forms that servers give it."""
        if isinstance(error, dict) and isinstance(error.get("error"), dict):
            error = error["error"]
        if not isinstance(error, dict):
            return self._clean(error if isinstance(error, str) else ""), ""
        names = [error[name] for name in ("code", "type") if isinstance(error.get(name), str)]
        kind = next((name.lower() for name in names if name.lower() in _KINDS), names[-1] if names else "")
        for name in ("message", "detail", "error"):
            if isinstance(message := error.get(name), str) and message:
                return self._clean(message), kind
        return "", self._clean(kind)

    def _clean(self, text: str) -> str:
        """One line without the key, not too long. The key is looked for first: a cut would leave a part of it."""
        text = " ".join("".join(c if c.isprintable() else " " for c in self._scrub(text)).split())
        return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"

    def _scrub(self, text: str) -> str:
        """Without the key as it is, nor as JSON, HTML, a URL or a header in lower case would spell it."""
        key = self._key.get_secret_value().strip()
        if not key:
            return text
        spellings = {key, json.dumps(key)[1:-1], html.escape(key), quote(key), quote(key, ""), quote_plus(key)}
        longest_first = sorted(spellings, key=len, reverse=True)
        return re.sub("|".join(map(re.escape, longest_first)), "[key]", text, flags=re.IGNORECASE)


def _why(error: Exception) -> str:
    """The system's word for it, where it has one: the library's own line says the address once more before it."""
    number = getattr(getattr(error, "os_error", None), "errno", None)
    return os.strerror(number) if isinstance(number, int) and number > 0 else ""


def _is_local(error: object) -> bool:
    """Whether this machine alone is the reason."""
    if isinstance(error, socket.gaierror):
        return error.errno in _NO_RESOLVER
    return isinstance(error, OSError) and error.errno in _LOCAL
